"""Graders: find the answer in a text and compare it with the right one."""
