"""Providers with hidden limits, and work to throw at them: where the governor can be watched and measured.

    capacity   how much a provider serves at once, over time, and the turnstile that enforces it
    dialect    what its answers look like on the wire
    errands    what a prompt asks of its model's tools
    provider   the two behind a real HTTP port
    workload   the seeded calls, the same for everyone who is compared
    worker     one process that makes its part of them
    heat       many workers against one provider, with or without the governor
    score      what a heat came to, in numbers

The same in simulated time, where hours take a second and everybody meets the same chances:

    jobs, hidden, shapes            the seeded work, and the rules a provider hides
    engine                          clients, a provider, and a brain between them; the oracle
    brains, peers, koryph, rate     flyball's own gate, and what others do
    scenario, held_out              what is simulated, and what is good there
    contenders, compare, report     everyone everywhere, in numbers and tables
    curve, plot                     one run as a picture

Nothing here touches the user's own state or any address but the loopback.
"""
