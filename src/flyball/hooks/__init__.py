"""Hooks in the agents' own settings: the second sensor, for sessions that flyball did not start.

The gateway sees model calls. Where a call cannot be led through it (a subscription's login, a session that a
person started by hand), the agent's own hooks tell what begins and what ends:

    session begins      it is counted, also beyond the cap: it runs already
    subagent wanted     waits for a slot; denied, in words for the model, where that takes too long
    subagent begins     takes over the slot that its call waited for
    subagent ends       gives it back
    session ends        gives everything back; so does the death of its process, to whose life all is bound

    events.py        what happened, in one vocabulary for all runtimes
    claude.py ...    one module per runtime: where its settings are, which events it has, what it is answered
    installation.py  puts entries into settings and takes them out again; json_text.py edits without rewriting
    slots.py         slots of the pool, by the governor
    session.py       what is kept of a session between its hooks; subagents.py: which subagent has which slot
    sensor.py        what an event does to the pool
    __main__.py      what an agent calls

A hook never breaks an agent: whatever fails here, the agent goes on, and a line in ``FLYBALL_HOME/hooks/log``
says what it was. Nothing heavy is imported before an event is known to matter.
"""
