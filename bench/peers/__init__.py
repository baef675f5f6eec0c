"""What flyball is measured against, each behind the same small door (doors.py)."""
