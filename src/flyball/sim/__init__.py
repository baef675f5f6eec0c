"""Providers with hidden limits, and work to throw at them: where the governor can be watched and measured.

    capacity   how much a provider serves at once, over time, and the turnstile that enforces it
    dialect    what its answers look like on the wire
    provider   the two behind a real HTTP port
    workload   the seeded calls, the same for everyone who is compared
    worker     one process that makes its part of them
    heat       many workers against one provider, with or without the governor
    score      what a heat came to, in numbers

Nothing here touches the user's own state or any address but the loopback.
"""
