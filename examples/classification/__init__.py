"""Parts of the classification examples."""
