"""Builds what lies in cc/: the TensorFlow library and the engine's test program.

Used by setup.py and the Makefile; nothing here is installed.
"""
