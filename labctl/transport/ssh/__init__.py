"""Boards, and build hosts, over ssh. All but ``transport`` needs the extra ``ssh``."""
