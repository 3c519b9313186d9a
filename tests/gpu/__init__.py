"""Checks the GPU engine on a GPU and times it beside cuDNN; see check_and_time.py."""
