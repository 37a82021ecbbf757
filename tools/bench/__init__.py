"""Benchmarks: one module for each `matwin bench` subject, run by hand and never from a test."""
