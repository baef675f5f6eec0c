------------------------------- MODULE Renewal -------------------------------
(***************************************************************************)
(* Share leases: the rule of src/flyball/core/renewal.py and holding.py.   *)
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
(* Targets are arbitrary until peace comes, so nothing that is shown about *)
(* the bound depends on how the plan divides the cap.                      *)
(*                                                                         *)
(* Sequence numbers are kept as distances: back = 0 is the latest renewal  *)
(* of its process, back = 1 the one before.  That is all the rule looks    *)
(* at, and it keeps the state space finite.  A message that is more than   *)
(* Late renewals old is lost.                                              *)
(*                                                                         *)
(* Once there is peace nothing bad happens any more, and everybody renews  *)
(* between two ticks.  What must come about then is a matter of liveness.  *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS
    Procs,      \* 1..n
    Born,       \* those that live from the start; the others may join
    Cap, Caps,  \* the first cap, and all its values
    TTL,        \* ticks that the store keeps a lease after a renewal
    Drift,      \* ticks that a holder's clock may be behind the store's
    Wire, Late, \* messages on their way per process and direction; how old they get
    Ticking,    \* whether time passes; without, nothing is fenced or evicted
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

Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b
RECURSIVE Sum(_, _)
Sum(f, S) == IF S = {} THEN 0 ELSE LET i == CHOOSE i \in S : TRUE IN f[i] + Sum(f, S \ {i})
Most == CHOOSE c \in Caps : \A d \in Caps : d <= c

Fence == TTL - Drift            \* a holder admits for this long after the send of an answered renewal
NoLease == [on |-> FALSE, back |-> 0, slots |-> 0, owed |-> 0, target |-> 0, drain |-> FALSE, ttl |-> 0]
Unborn  == [st |-> "unborn", pend |-> FALSE, age |-> 0, gate |-> 0, fence |-> 0, early |-> FALSE,
            leaving |-> FALSE, work |-> 0, off |-> 0, beat |-> FALSE]
Fresh   == [Unborn EXCEPT !.st = "live"]
Over    == [Unborn EXCEPT !.st = "over"]

Live(i)  == proc[i].st = "live"
Stays    == {i \in Procs : Live(i) /\ ~proc[i].leaving}
Slots    == [i \in Procs |-> lease[i].slots]
Granted  == [i \in Procs |-> lease[i].slots - lease[i].owed]
InFlight == [i \in Procs |-> proc[i].work]

TypeOK ==
    /\ cap \in Caps /\ high \in 0..Most /\ learning \in 0..TTL /\ peace \in BOOLEAN
    /\ \A i \in Procs :
        /\ proc[i].age \in 0..Fence /\ proc[i].fence \in 0..Fence /\ proc[i].off \in 0..Drift
        /\ proc[i].gate \in 0..Most /\ proc[i].work \in 0..Most
        /\ lease[i].slots \in 0..Most /\ lease[i].owed \in 0..lease[i].slots
        /\ lease[i].ttl \in 0..TTL /\ lease[i].back \in 0..(Late + 1)
        /\ Cardinality(asks[i]) <= Wire /\ Cardinality(tells[i]) <= Wire

Init ==
    /\ cap = Cap /\ high = Cap /\ learning = 0 /\ peace = FALSE
    /\ left = [crash |-> Crashes, leave |-> Leaves, flush |-> Flushes, move |-> Moves]
    /\ proc = [i \in Procs |-> IF i \in Born THEN Fresh ELSE Unborn]
    /\ lease = [i \in Procs |-> NoLease]
    /\ asks = [i \in Procs |-> {}] /\ tells = [i \in Procs |-> {}]

(* The high water comes down with what is held, once the store knows all of it. *)
Settled(h, c, rows, learns) ==
    IF learns > 0 THEN Max(h, c) ELSE Max(c, Min(h, Sum([i \in Procs |-> rows[i].slots], Procs)))

------------------------------------------------------------------------------
(* The holder *)

Fenced(i) == proc[i].fence = 0
Limit(i)  == IF Fenced(i) \/ proc[i].leaving THEN 0 ELSE proc[i].gate

Older(messages) == {[m EXCEPT !.back = @ + 1] : m \in {m \in messages : m.back < Late}}

\* In peace nobody sends again while an answer is still to come.
Patient(i) == ~peace \/ (asks[i] = {} /\ tells[i] = {} /\ ~proc[i].beat)

Send(i) ==
    /\ Live(i) /\ Patient(i) /\ Cardinality(Older(asks[i])) < Wire
    /\ LET gate == Limit(i)
           holds == Max(gate, proc[i].work)     \* the gate is closed and the work fits: only now less is declared
       IN /\ proc' = [proc EXCEPT ![i].pend = TRUE, ![i].age = 0, ![i].gate = gate, ![i].early = FALSE]
          /\ asks' = [asks EXCEPT ![i] = Older(@) \cup {[back |-> 0, holds |-> holds, leaving |-> proc[i].leaving]}]
    /\ tells' = [tells EXCEPT ![i] = Older(@)]
    /\ lease' = [lease EXCEPT ![i].back = IF lease[i].on THEN Min(@ + 1, Late + 1) ELSE 0]
    /\ UNCHANGED <<cap, high, learning, left, peace>>

Receive(i, m, again) ==
    /\ Live(i) /\ m \in tells[i]
    /\ IF m.back = 0 /\ proc[i].pend /\ proc[i].early   \* asked before a fence that has been reached: too late
       THEN proc' = [proc EXCEPT ![i].pend = FALSE, ![i].age = 0, ![i].early = FALSE]
       ELSE IF m.back = 0 /\ proc[i].pend       \* the latest, for the first time; every other reply is dropped
       THEN LET fence == Fence - proc[i].age    \* counted from the send
            IN proc' = [proc EXCEPT ![i].pend = FALSE, ![i].age = 0, ![i].fence = fence,
                                    ![i].gate = IF fence = 0 THEN 0 ELSE m.gate, ![i].beat = peace]
       ELSE proc' = proc
    /\ tells' = [tells EXCEPT ![i] = IF again THEN @ ELSE @ \ {m}]
    /\ UNCHANGED <<cap, high, learning, left, peace, lease, asks>>

Start(i) ==
    /\ Live(i) /\ proc[i].work < Limit(i)
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

Known(i) == IF lease[i].on THEN lease[i] ELSE [NoLease EXCEPT !.on = TRUE, !.target = cap]

Renewed(i, m) ==
    LET row    == Known(i)
        drain  == row.drain \/ m.leaving
        others == Sum(Slots, Procs \ {i})
        target == IF drain THEN 0
                  ELSE IF learning > 0 /\ others + m.holds <= cap THEN Max(row.target, m.holds) ELSE row.target
        room   == IF learning > 0 THEN 0 ELSE cap - others - m.holds
        slots  == m.holds + Max(0, Min(target - m.holds, room))
        excess == Max(0, others + slots - cap)
        owed   == IF learning > 0 THEN Min(row.owed, slots)
                  ELSE Min(Min(row.owed + Max(0, m.holds - row.slots), excess), slots)
    IN [row  |-> [row EXCEPT !.back = m.back, !.slots = slots, !.owed = owed, !.drain = drain, !.ttl = TTL],
        told |-> [back |-> m.back, gate |-> Min(target, slots - owed)]]

Arrive(i, m, again) ==
    /\ m \in asks[i]
    /\ asks' = [asks EXCEPT ![i] = IF again THEN @ ELSE @ \ {m}]
    /\ IF lease[i].on /\ m.back >= lease[i].back        \* not newer than what was seen: nothing changes
       THEN UNCHANGED <<lease, tells, high>>
       ELSE LET done == Renewed(i, m)
            IN /\ lease' = [lease EXCEPT ![i] = done.row]
               /\ high' = Settled(high, cap, lease', learning)
               /\ tells' = [tells EXCEPT ![i] =
                      IF Live(i) /\ Cardinality(@) < Wire THEN @ \cup {done.told} ELSE @]
    /\ UNCHANGED <<cap, learning, left, peace, proc>>

Evict(i) ==
    /\ lease[i].on /\ lease[i].ttl = 0
    /\ lease' = [lease EXCEPT ![i] = NoLease]
    /\ high' = Settled(high, cap, lease', learning)
    /\ UNCHANGED <<cap, learning, left, peace, proc, asks, tells>>

Plan(i, t) ==
    /\ ~peace /\ lease[i].on /\ lease[i].target # t
    /\ lease' = [lease EXCEPT ![i].target = t]
    /\ UNCHANGED <<cap, high, learning, left, peace, proc, asks, tells>>

\* In peace the plan is `even`: the same for all that stay, remainders to the lowest.
Asked == {i \in Procs : lease[i].on /\ ~lease[i].drain}
Part(i) == LET n == Cardinality(Asked)
               room == Max(0, cap - Sum(Slots, Procs \ Asked))
           IN room \div n + IF Cardinality({j \in Asked : j < i}) < room % n THEN 1 ELSE 0

EvenPlan ==
    /\ peace
    /\ \E i \in Asked : lease[i].target # Part(i)
    /\ lease' = [i \in Procs |-> IF i \in Asked THEN [lease[i] EXCEPT !.target = Part(i)] ELSE lease[i]]
    /\ UNCHANGED <<cap, high, learning, left, peace, proc, asks, tells>>

------------------------------------------------------------------------------
(* Time, and what goes wrong *)

Aged(p, off) ==
    LET passed == 1 - (off - p.off)
        fence  == Max(0, p.fence - passed)
    IN [p EXCEPT !.off = off, !.fence = fence, !.beat = FALSE,
                 !.gate = IF fence = 0 THEN 0 ELSE @,
                 !.early = p.pend /\ fence = 0 /\ (p.early \/ p.fence > 0),
                 !.age = IF p.pend THEN Min(Fence, @ + passed) ELSE 0,
                 !.work = IF p.fence > 0 /\ fence = 0 THEN 0 ELSE @]     \* on_fenced ends it

\* In peace everybody renews between two ticks.
Timely == peace => \A i \in Procs : asks[i] = {} /\ tells[i] = {} /\ (Live(i) => proc[i].beat)

Tick ==
    /\ Ticking /\ Timely
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

Peace ==
    /\ ~peace /\ peace' = TRUE
    /\ UNCHANGED <<cap, high, learning, left, proc, lease, asks, tells>>

Work(i) ==
    \/ Send(i) \/ Start(i) \/ End(i) \/ Exit(i) \/ Evict(i)
    \/ \E m \in tells[i] : Receive(i, m, FALSE)
    \/ \E m \in asks[i] : Arrive(i, m, FALSE)

Fault(i) ==
    \/ Lose(i) \/ Join(i) \/ Leave(i) \/ Crash(i)
    \/ ~peace /\ \E m \in tells[i] : Receive(i, m, TRUE)
    \/ ~peace /\ \E m \in asks[i] : Arrive(i, m, TRUE)
    \/ \E t \in 0..Most : Plan(i, t)

Anything == Tick \/ EvenPlan \/ Flush \/ MoveCap \/ \E i \in Procs : Work(i) \/ Fault(i)
Next == Anything \/ Peace

Fairness ==
    /\ WF_vars(Tick) /\ WF_vars(EvenPlan)
    /\ \A i \in Procs :
        /\ WF_vars(Send(i)) /\ WF_vars(End(i)) /\ WF_vars(Exit(i)) /\ WF_vars(Evict(i))
        /\ WF_vars(\E m \in tells[i] : Receive(i, m, FALSE))
        /\ WF_vars(\E m \in asks[i] : Arrive(i, m, FALSE))

Spec == Init /\ [][Next]_vars /\ Fairness
Safe == Init /\ [][Anything]_vars     \* peace adds nothing that could pass a bound

------------------------------------------------------------------------------
(* What holds in every state *)

\* The store never grants past the cap. Above it is only what was held when the cap was lowered.
GlobalCap == Sum(Granted, Procs) <= high

\* Never more in flight than that, at any instant, whatever was lost, late or forgotten.
InflightCap == Sum(InFlight, Procs) <= high

\* No holder may use more than the store counts for it, except while the store learns.
Covered == learning > 0 \/ \A i \in Procs : Live(i) => Max(Limit(i), proc[i].work) <= lease[i].slots

\* Both bounds are met exactly, by more than one process: these two are violated, and should be.
GlobalCapAttained == ~(Sum(Granted, Procs) = cap /\ Cardinality({i \in Procs : Granted[i] > 0}) > 1)
InflightCapAttained == ~(Sum(InFlight, Procs) = cap /\ Cardinality({i \in Procs : InFlight[i] > 0}) > 1)

(* What comes about once there is peace *)

\* Every slot is in the hands of somebody who stays, and remains so.
NoLostSlot == peace ~> [](Stays = {} \/ Sum(Slots, Stays) = cap)

\* Everybody who stays gets its part, and keeps it.
EventualShare == \A i \in Procs :
    (peace /\ i \in Stays) ~> [](proc[i].gate >= cap \div Cardinality(Stays))

==============================================================================
