"""What a person runs: the command line and what stands behind its commands.

The top layer. It may use every other one, and no other one uses it.
"""
