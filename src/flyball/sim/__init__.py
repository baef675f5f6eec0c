"""Providers with hidden limits, and work to throw at them: where the governor can be watched and measured.

    provider/    a provider behind a real HTTP port: how much it serves at once, what its answers look like
    simulator/   the same in simulated time, where hours take a second and all meet the same chances
    demo/        many workers against one provider, with or without the governor, and what came of it

Nothing here touches the user's own state or any address but the loopback.
"""
