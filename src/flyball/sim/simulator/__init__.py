"""Discrete events in simulated time, where hours take a second."""
