"""Declaring a command: `commands`: groups of commands, imported when they are called; `options`: common options, and
the output of a command.
"""
