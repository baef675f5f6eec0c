"""How a waiter is told to look: a datagram to its mailbox. Losing one is harmless, waiters also poll."""
