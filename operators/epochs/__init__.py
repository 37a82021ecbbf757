"""Continuous queries by epochs: streams cut into chunks, one query run chunk by chunk."""
