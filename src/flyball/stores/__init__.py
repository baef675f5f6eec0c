"""Where state lives. One port (port.py), one set of verbs (verbs.py) over two kinds of rows.

``memory`` keeps rows in dictionaries, ``sqlite`` in one file that all processes of a machine share.
Both run the same verbs and the same plan, so the same trace gives the same verdicts.
"""
