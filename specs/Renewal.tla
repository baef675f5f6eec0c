------------------------------- MODULE Renewal -------------------------------
(***************************************************************************)
(* Share leases: the rule of src/flyball/core/share_lease/renewal.py and holding.py.   *)
(*                                                                         *)
(* A few processes (incarnations of nodes; a restarted node is another     *)
(* process) hold slots of one pool and spend them by themselves.  A lease  *)
(* changes size only in its own holder's renewal; the store asks, with a   *)
(* target, and never takes.  Messages get lost, are delivered more than    *)
(* once, in any order and late.  Processes join, leave with work running,  *)
(* crash, and live on while the store evicts them.  The store forgets      *)
(* everything.  The cap moves.  Clocks run at different rates, and none is *)
(* compared with another: all times below are countdowns.                  *)
(*                                                                         *)
(* Every renewal meets an arbitrary target until peace comes, so nothing   *)
(* that is shown about the bound depends on how the plan divides the cap.  *)
(*                                                                         *)
(* Sequence numbers are kept as distances: back = 0 is the latest renewal  *)
(* of its process, back = 1 the one before.  That is all the rule looks    *)
(* at, and it keeps the state space finite.  A message that is more than   *)
(* Late renewals old is lost.                                              *)
(*                                                                         *)
(* Work ends at a fence.  Work that does not is left to the explorer in    *)
(* tests/explore, which drives the shipped code.                           *)
(*                                                                         *)
(* Once there is peace nothing bad happens any more, and everybody renews  *)
(* between two ticks.  What must come about then is a matter of liveness.  *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS
    N,          \* processes
    Later,      \* how many of them join later
    Caps,       \* the values of the cap; the largest comes first
    TTL,        \* ticks that the store keeps a lease after a renewal; 0: no time passes
    Drift,      \* ticks that a holder's clock may be behind the store's
    Wire, Late, \* messages on their way per process and direction; how old they get
    Twice,      \* whether messages may be delivered more than once
    Crashes, Leaves, Flushes, Moves     \* how often each may happen

VARIABLES
    cap,        \* slots of the pool
    high,       \* the most that may be in use: the cap, or what was held when it was lowered
    learning,   \* ticks until a store that forgot grants again
    left,       \* how often rare things may still happen
    peace,
    proc,       \* the holders: processes with a gate and work below it
    lease,      \* the store
    asks, tells \* the network: renewals, and replies to them

vars == <<cap, high, learning, left, peace, proc, lease, asks, tells>>

Procs == 1..N
Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b
RECURSIVE SumTo(_, _)
SumTo(f, n) == IF n = 0 THEN 0 ELSE f[n] + SumTo(f, n - 1)
Sum(f) == SumTo(f, N)
Most == CHOOSE c \in Caps : \A d \in Caps : d <= c

Fence == TTL - Drift            \* a holder admits for this long after the send of an answered renewal
Timeless == TTL = 0
NoLease == [on |-> FALSE, back |-> 0, slots |-> 0, owed |-> 0, drain |-> FALSE, ttl |-> 0]
Unborn  == [st |-> "unborn", pend |-> FALSE, age |-> 0, gate |-> 0, open |-> FALSE, fence |-> 0,
            early |-> FALSE, leaving |-> FALSE, work |-> 0, off |-> 0, beat |-> FALSE]
Fresh   == [Unborn EXCEPT !.st = "live"]
Over    == [Unborn EXCEPT !.st = "over"]

Live(i)  == proc[i].st = "live"
Stays    == {i \in Procs : Live(i) /\ ~proc[i].leaving}
Slots    == [i \in Procs |-> lease[i].slots]
Granted  == [i \in Procs |-> lease[i].slots - lease[i].owed]
InFlight == [i \in Procs |-> proc[i].work]
Others(i) == Sum(Slots) - lease[i].slots

TypeOK ==
    /\ cap \in Caps /\ high \in 0..Most /\ learning \in 0..TTL /\ peace \in BOOLEAN
    /\ \A i \in Procs :
        /\ proc[i].age \in 0..Fence /\ proc[i].fence \in 0..Fence /\ proc[i].off \in 0..Drift
        /\ proc[i].gate \in 0..Most /\ proc[i].work \in 0..Most
        /\ lease[i].slots \in 0..Most /\ lease[i].owed \in 0..lease[i].slots
        /\ lease[i].ttl \in 0..TTL /\ lease[i].back \in 0..(Late + 1)
        /\ Cardinality(asks[i]) <= Wire /\ Cardinality(tells[i]) <= Wire

Init ==
    /\ cap = Most /\ high = Most /\ learning = 0 /\ peace = FALSE
    /\ left = [crash |-> Crashes, leave |-> Leaves, flush |-> Flushes, move |-> Moves]
    /\ proc = [i \in Procs |-> IF i <= N - Later THEN Fresh ELSE Unborn]
    /\ lease = [i \in Procs |-> NoLease]
    /\ asks = [i \in Procs |-> {}] /\ tells = [i \in Procs |-> {}]

(* The high water comes down with what is held, once the store knows all of it. *)
Settled(h, c, rows, learns) ==
    IF learns > 0 THEN Max(h, c) ELSE Max(c, Min(h, Sum([i \in Procs |-> rows[i].slots])))

------------------------------------------------------------------------------
(* The holder *)

Limit(p) == IF p.open /\ ~p.leaving THEN p.gate ELSE 0      \* open: answered, and the fence not reached

Older(messages) == {[m EXCEPT !.back = @ + 1] : m \in {m \in messages : m.back < Late}}

Declared(i) == [back |-> 0, holds |-> Max(Limit(proc[i]), proc[i].work), leaving |-> proc[i].leaving]

\* The gate is closed and the work fits: only now less is declared.
Sent(p) == [p EXCEPT !.pend = TRUE, !.age = 0, !.gate = Limit(p), !.early = FALSE]

Send(i) ==
    /\ ~peace /\ Live(i) /\ Cardinality(Older(asks[i])) < Wire
    /\ proc' = [proc EXCEPT ![i] = Sent(@)]
    /\ asks' = [asks EXCEPT ![i] = Older(@) \cup {Declared(i)}]
    /\ tells' = [tells EXCEPT ![i] = Older(@)]
    /\ lease' = [lease EXCEPT ![i].back = IF lease[i].on THEN Min(@ + 1, Late + 1) ELSE 0]
    /\ UNCHANGED <<cap, high, learning, left, peace>>

\* What a reply makes of its holder: nothing, unless it answers the latest renewal for the first time,
\* and that was not sent before a fence that has been reached since.
Heard(p, m) ==
    IF m.back # 0 \/ ~p.pend THEN p
    ELSE IF p.early THEN [p EXCEPT !.pend = FALSE, !.age = 0, !.early = FALSE]
    ELSE LET fence == Fence - p.age             \* counted from the send
             open == Timeless \/ fence > 0
         IN [p EXCEPT !.pend = FALSE, !.age = 0, !.fence = fence, !.open = open,
                      !.gate = IF open THEN m.gate ELSE 0]

Receive(i, m, again) ==
    /\ Live(i) /\ m \in tells[i]
    /\ proc' = [proc EXCEPT ![i] = Heard(@, m)]
    /\ tells' = [tells EXCEPT ![i] = IF again THEN @ ELSE @ \ {m}]
    /\ UNCHANGED <<cap, high, learning, left, peace, lease, asks>>

Start(i) ==
    /\ Live(i) /\ proc[i].work < Limit(proc[i])
    /\ proc' = [proc EXCEPT ![i].work = @ + 1]
    /\ UNCHANGED <<cap, high, learning, left, peace, lease, asks, tells>>

End(i) ==
    /\ Live(i) /\ proc[i].work > 0
    /\ proc' = [proc EXCEPT ![i].work = @ - 1]
    /\ UNCHANGED <<cap, high, learning, left, peace, lease, asks, tells>>

\* Left for good: the store knows that nothing is held.
Exit(i) ==
    /\ Live(i) /\ proc[i].leaving /\ proc[i].work = 0 /\ ~proc[i].pend
    /\ lease[i].drain /\ lease[i].slots = 0
    /\ proc' = [proc EXCEPT ![i] = Over]
    /\ tells' = [tells EXCEPT ![i] = {}]
    /\ UNCHANGED <<cap, high, learning, left, peace, lease, asks>>

------------------------------------------------------------------------------
(* The store *)

\* In peace the plan is `even`: the same for all that stay, remainders to the lowest.
Asked(i) == {j \in Procs : j = i \/ (lease[j].on /\ ~lease[j].drain)}
Part(i) == LET asked == Asked(i)
               room == Max(0, cap - Sum([j \in Procs |-> IF j \in asked THEN 0 ELSE lease[j].slots]))
               n == Cardinality(asked)
           IN room \div n + IF Cardinality({j \in asked : j < i}) < room % n THEN 1 ELSE 0

Renewed(i, m, plan) ==
    LET drain  == lease[i].drain \/ m.leaving
        others == Others(i)
        target == IF drain THEN 0
                  ELSE IF learning > 0 /\ others + m.holds <= cap THEN Max(plan, m.holds) ELSE plan
        room   == IF learning > 0 THEN 0 ELSE cap - others - m.holds
        slots  == m.holds + Max(0, Min(target - m.holds, room))
        \* declared and not granted: counted, but no right to more while more is held than the cap
        owed   == IF learning > 0 THEN Min(lease[i].owed, slots)
                  ELSE Min(Min(lease[i].owed + Max(0, m.holds - lease[i].slots), Max(0, others + slots - cap)), slots)
    IN [row  |-> [on |-> TRUE, back |-> m.back, slots |-> slots, owed |-> owed, drain |-> drain, ttl |-> TTL],
        told |-> [back |-> m.back, gate |-> Min(target, slots - owed)]]

Arrive(i, m, again) ==
    /\ m \in asks[i]
    /\ asks' = [asks EXCEPT ![i] = IF again THEN @ ELSE @ \ {m}]
    /\ IF lease[i].on /\ m.back >= lease[i].back        \* not newer than what was seen: nothing changes
       THEN UNCHANGED <<lease, tells, high>>
       ELSE \E plan \in 0..Most :       \* whatever the plan may be
            LET done == Renewed(i, m, plan)
            IN /\ lease' = [lease EXCEPT ![i] = done.row]
               /\ high' = Settled(high, cap, lease', learning)
               /\ tells' = [tells EXCEPT ![i] =
                      IF Live(i) /\ Cardinality(@) < Wire THEN @ \cup {done.told} ELSE @]
    /\ UNCHANGED <<cap, learning, left, peace, proc>>

\* In peace a renewal and its reply are one step, once between two ticks.
Exchange(i) ==
    /\ peace /\ Live(i) /\ ~proc[i].beat
    /\ LET done == Renewed(i, Declared(i), Part(i))
       IN /\ lease' = [lease EXCEPT ![i] = done.row]
          /\ high' = Settled(high, cap, lease', learning)
          /\ proc' = [proc EXCEPT ![i] = [Heard(Sent(@), done.told) EXCEPT !.beat = TRUE]]
    /\ UNCHANGED <<cap, learning, left, peace, asks, tells>>

Evict(i) ==
    /\ ~Timeless /\ lease[i].on /\ lease[i].ttl = 0
    /\ lease' = [lease EXCEPT ![i] = NoLease]
    /\ high' = Settled(high, cap, lease', learning)
    /\ UNCHANGED <<cap, learning, left, peace, proc, asks, tells>>

------------------------------------------------------------------------------
(* Time, and what goes wrong *)

Aged(p, off) ==
    LET passed == 1 - (off - p.off)
        fence  == Max(0, p.fence - passed)
        closes == p.fence > 0 /\ fence = 0
    IN [p EXCEPT !.off = off, !.fence = fence, !.beat = FALSE,
                 !.open = p.open /\ fence > 0,
                 !.gate = IF fence = 0 THEN 0 ELSE @,
                 !.early = p.pend /\ fence = 0 /\ (p.early \/ closes),
                 !.age = IF p.pend THEN Min(Fence, @ + passed) ELSE 0,
                 !.work = IF closes THEN 0 ELSE @]      \* on_fenced ends it

\* In peace, between two ticks, work that does not fit ends, everybody renews, and what is over is evicted.
Timely == peace => \A i \in Procs :
    /\ Live(i) => proc[i].beat /\ proc[i].work <= Limit(proc[i])
    /\ lease[i].on => lease[i].ttl > 0

Tick ==
    /\ ~Timeless /\ Timely
    /\ \E off \in [Procs -> 0..Drift] :
        /\ \A i \in Procs : off[i] - proc[i].off \in {-1, 0, 1} /\ (~Live(i) => off[i] = proc[i].off)
        /\ proc' = [i \in Procs |-> IF Live(i) THEN Aged(proc[i], off[i]) ELSE proc[i]]
    /\ lease' = [i \in Procs |-> [lease[i] EXCEPT !.ttl = Max(0, @ - 1)]]
    /\ learning' = Max(0, learning - 1)
    /\ high' = Settled(high, cap, lease, learning')
    /\ UNCHANGED <<cap, left, peace, asks, tells>>

Lose(i) ==
    /\ ~peace
    /\ \/ \E m \in asks[i] : asks' = [asks EXCEPT ![i] = @ \ {m}] /\ UNCHANGED tells
       \/ \E m \in tells[i] : tells' = [tells EXCEPT ![i] = @ \ {m}] /\ UNCHANGED asks
    /\ UNCHANGED <<cap, high, learning, left, peace, proc, lease>>

Join(i) ==
    /\ ~peace /\ proc[i].st = "unborn"
    /\ proc' = [proc EXCEPT ![i] = Fresh]
    /\ UNCHANGED <<cap, high, learning, left, peace, lease, asks, tells>>

Leave(i) ==
    /\ ~peace /\ left.leave > 0 /\ i \in Stays
    /\ proc' = [proc EXCEPT ![i].leaving = TRUE]
    /\ left' = [left EXCEPT !.leave = @ - 1]
    /\ UNCHANGED <<cap, high, learning, peace, lease, asks, tells>>

Crash(i) ==
    /\ ~peace /\ left.crash > 0 /\ Live(i)
    /\ proc' = [proc EXCEPT ![i] = Over]
    /\ tells' = [tells EXCEPT ![i] = {}]
    /\ left' = [left EXCEPT !.crash = @ - 1]
    /\ UNCHANGED <<cap, high, learning, peace, lease, asks>>

Flush ==
    /\ ~peace /\ left.flush > 0
    /\ lease' = [i \in Procs |-> NoLease]
    /\ learning' = TTL
    /\ left' = [left EXCEPT !.flush = @ - 1]
    /\ UNCHANGED <<cap, high, peace, proc, asks, tells>>

MoveCap ==
    /\ ~peace /\ left.move > 0
    /\ \E c \in Caps \ {cap} : cap' = c /\ high' = Settled(Max(high, c), c, lease, learning)
    /\ left' = [left EXCEPT !.move = @ - 1]
    /\ UNCHANGED <<learning, peace, proc, lease, asks, tells>>

\* All that is on its way is lost; nobody waits for it.
Peace ==
    /\ ~peace /\ peace' = TRUE
    /\ asks' = [i \in Procs |-> {}] /\ tells' = [i \in Procs |-> {}]
    /\ proc' = [i \in Procs |-> [proc[i] EXCEPT !.pend = FALSE, !.age = 0, !.early = FALSE]]
    /\ left' = [crash |-> 0, leave |-> 0, flush |-> 0, move |-> 0]
    /\ high' = cap
    /\ UNCHANGED <<cap, learning, lease>>

Work(i) ==
    \/ Send(i) \/ Exchange(i) \/ Start(i) \/ End(i) \/ Exit(i) \/ Evict(i)
    \/ \E m \in tells[i] : Receive(i, m, FALSE)
    \/ \E m \in asks[i] : Arrive(i, m, FALSE)

Fault(i) ==
    \/ Lose(i) \/ Join(i) \/ Leave(i) \/ Crash(i)
    \/ Twice /\ ~peace /\ \E m \in tells[i] : Receive(i, m, TRUE)
    \/ Twice /\ ~peace /\ \E m \in asks[i] : Arrive(i, m, TRUE)

Anything == Tick \/ Flush \/ MoveCap \/ \E i \in Procs : Work(i) \/ Fault(i)
Next == Anything \/ Peace

\* Work that no longer fits ends.
Drain(i) == proc[i].work > Limit(proc[i]) /\ End(i)

\* One fair action suffices: no tick comes before the others have happened, and they happen a few times at most.
Progress == Tick \/ \E i \in Procs : Exchange(i) \/ Drain(i) \/ Exit(i) \/ Evict(i)

Spec == Init /\ [][Next]_vars /\ WF_vars(peace /\ Progress)
Safe == Init /\ [][Anything]_vars     \* peace adds nothing that could pass a bound

------------------------------------------------------------------------------
(* What holds in every state *)

\* What a holder uses, or may use, or may use once it hears what is on its way.
Right(i) == IF ~Live(i) THEN 0
            ELSE LET may == {proc[i].work, Limit(proc[i])} \cup {Limit(Heard(proc[i], m)) : m \in tells[i]}
                 IN CHOOSE x \in may : \A y \in may : y <= x
Rights == [i \in Procs |-> Right(i)]

\* No more is granted than the cap; above it is only what was held when the cap was lowered.
GlobalCap == Sum(Rights) <= high

\* Never more in flight than that, at any instant, whatever was lost, late or forgotten.
InflightCap == Sum(InFlight) <= high

\* The books agree, as long as the store remembers. One that forgot may count what is out of date: too much.
Books == left.flush < Flushes \/ Sum(Granted) <= high

\* No holder may use more than the store counts for it, except while the store learns.
Covered == learning > 0 \/ \A i \in Procs : Rights[i] <= lease[i].slots

\* Both bounds are met exactly, by more than one process: these two are violated, and should be.
GlobalCapNotAttained == ~(Sum(Rights) = cap /\ Cardinality({i \in Procs : Rights[i] > 0}) > 1)
InflightCapNotAttained == ~(Sum(InFlight) = cap /\ Cardinality({i \in Procs : InFlight[i] > 0}) > 1)

(* What comes about once there is peace; it lasts *)

\* Every slot is in the hands of somebody who stays, and remains so.
NoLostSlot == <>[](peace =>
    Stays = {} \/ Sum([i \in Procs |-> IF i \in Stays THEN lease[i].slots ELSE 0]) = cap)

\* Everybody who stays gets its part, and keeps it.
EventualShare == <>[](peace => \A i \in Stays : Limit(proc[i]) >= cap \div Cardinality(Stays))

==============================================================================
