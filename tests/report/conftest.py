"""Fixtures of the tests of reports."""

from chinese_texts import every_text_has_chinese

__all__ = ["every_text_has_chinese"]
