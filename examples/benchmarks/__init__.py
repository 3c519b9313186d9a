"""Benchmarks of tf_ecornn against other ways to do the same work."""
