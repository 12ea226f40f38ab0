"""Boards and build hosts over ssh. All modules except ``transport`` need the extra ``ssh``."""
