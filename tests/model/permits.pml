// The permit protocol of sql/functions/: claim, renew, release, lapse, purge and a cap that is lowered,
// by three sessions on two pools of two lanes. model_test.go has spin try every interleaving.
//
// A step is what one SQL statement does at one instant (READ COMMITTED): its snapshot read, or its row
// locks with the conditions looked at again on the newest version. Time passes between any two steps.
// A lane's row has a committed state and, while a transaction has it locked, perhaps a change that
// others see with the commit. The number of a permit stands for the turn too: both are new with each
// hand-over. Retries with skip locked wait here until a new look would find something else, so
// sessions that would retry in a circle end as a deadlock.
//
// MUT_… macros take one precaution away each; the check must then find a fault. TIME_STANDS_STILL
// leaves the lapses out, so that a wait that only a lapse would end is a deadlock too.
//
// Left out: endpoint and installation as separate pools, more lanes, the creation locks' collisions,
// the look at every pool before the first lock and the lane met at random (both are a _find_lanes whose
// result is older, and every lock repeats the conditions), the holder's name in release, time-outs (a
// wait of the model is one of at most a second), crashes, epochs and reassertions, and what is open
// longer than one call. Purge takes any lapsed row for one that has been idle for purge_after, and a purge
// call for each pool.

#ifndef CALLS
#define CALLS 3 // of claim, renew and release together, by whichever worker is idle
#endif

#define WORKERS 3
#define PURGER 4 // locks under this number; workers under 1 to 3, 0 is nobody

// Pool 0 is a holder's, pool 1 is shared. Lane l (0 or 1) of pool p is row 2 * p + l.
#define FIRST (2 * p)
#define SECOND (2 * p + 1)

mtype = { none, inserted, taken, renewed, released, retired, deleted };

byte cap = 2; // of the shared pool, lowered once; the holder's stays 2

// pglimit.permits
bool there[4];          // committed
byte number[4];         // permit_id; 0 for a lane never taken, and kept over a purge, to compare
bool live[4];           // expires_at > clock_timestamp()
bool over[4];           // expires_at = -infinity: released or new, while what lapsed keeps its end
byte lock[4];           // who has locked the row
mtype change[4] = none; // by who has locked it, not committed yet

// pglimit.creation_locks, a row for each pool
#ifdef MUT_LANE_CREATION_LOCKS
#define LOCKS 4 // a row for each lane
#else
#define LOCKS 2
#endif
byte creation[LOCKS];

byte drawn; // the sequence permit_number

// Of each worker.
byte capOf[4];   // cap of the shared pool that its claim goes by
byte capMost[4]; // the largest cap of all claims in flight when it began
byte most[4];    // of each row of the shared pool, capMost of the claim that took it
bool busy[4];

byte calls; // begun so far

// What a claim of worker `me` sees in pool p: own inserts, and all that is committed.
#define VISIBLE(x) (there[x] || (change[x] == inserted && lock[x] == me))
#define LIVE(x) (there[x] && live[x])
// With lanes above the cap only what was released is free: a renewal may bring back what lapsed.
#ifdef MUT_LAPSED_IS_FREE
#define USED(x) LIVE(x)
#else
#define USED(x) (LIVE(x) || (lowered && there[x] && !over[x] && !(change[x] == retired && lock[x] == me)))
#endif
#ifdef MUT_RETIRE_WITHOUT_CREATION_LOCK
#define RETIRES lowered
#else
#define RETIRES (lowered && alone)
#endif
#define IN_USE (USED(FIRST) + USED(SECOND))
#define CAP (p == 0 -> 2 : capOf[me])
#define TOP (VISIBLE(SECOND) -> 2 : (VISIBLE(FIRST) -> 1 : 0))
// with k lanes claimable, k = cap - live lanes above k
#define CLAIMABLE(x) (VISIBLE(x) && !USED(x) && x % 2 + 1 + (x == FIRST -> USED(SECOND) : 0) <= CAP)
// for update skip locked, with the conditions repeated
#define OPEN(x) (!mine[x] && (lock[x] == 0 || \
    (lock[x] == me && (change[x] == inserted || change[x] == retired))))
#ifdef MUT_NO_LAPSE_RECHECK
#define STILL_FREE(x) (VISIBLE(x) && seen[x] == number[x] + 1)
#else
#define STILL_FREE(x) (VISIBLE(x) && seen[x] == number[x] + 1 && !live[x])
#endif
#define LOCKABLE(x) (OPEN(x) && STILL_FREE(x))
#define NO_ROOM (IN_USE + weight > CAP)
// A retry of _take_lanes would do something else than retry.
#define WORTH_A_LOOK (NO_ROOM || TOP < CAP || (weight > 1 && !alone) \
    || (OPEN(FIRST) && CLAIMABLE(FIRST)) || (OPEN(SECOND) && CLAIMABLE(SECOND)))

inline unlock() {
    d_step {
        for (x : 0 .. 3) {
            if
            :: lock[x] == me -> lock[x] = 0; change[x] = none
            :: else
            fi
        }
        for (x : 0 .. LOCKS - 1) {
            if :: creation[x] == me -> creation[x] = 0 :: else fi
        }
        x = 0
    }
}

// A pool has lanes 1 to top: with a hole, a claim would wait for a lane that nobody makes.
inline noHole() {
    assert(there[0] || !there[1]);
    assert(there[2] || !there[3])
}

inline commit() {
    d_step {
        for (x : 0 .. 3) {
            if
            :: lock[x] != me || change[x] == none
            :: else ->
                there[x] = (change[x] != deleted);
                live[x] = (change[x] == taken || change[x] == renewed);
                over[x] = (change[x] == inserted || change[x] == released || change[x] == retired);
                if
                :: change[x] == taken ->
                    number[x] = permit;
                    most[x] = (x > 1 -> capMost[me] : 0)
                :: !live[x] -> most[x] = 0
                :: else
                fi
            fi
        }
        x = 0
    }
    unlock();
    noHole()
}

// No permit lives beside more than the largest cap in flight allowed when it was granted, not even
// after a renewal that was decided in time and commits after its old lease has ended.
#define CAPS_KEPT (!(live[2] && live[3]) || (number[2] > number[3] -> most[2] : most[3]) == 2)

#ifdef MUT_MARK_UNSEEN
#define OF_PERMIT(x) (there[x] && number[x] == permit)
#else
#define OF_PERMIT(x) (there[x] && number[x] == permit && !over[x]) // without those that _retire_lapsed has marked
#endif
#define OTHERS_FREE(x) (OF_PERMIT(x) && lock[x] == 0)

// Idle workers are alike: the first of them is next.
#define MY_TURN ((me == 1 || busy[1]) && (me != 3 || busy[2]))

inline finish() {
    capOf[me] = 0; capMost[me] = 0;
    weight = 0; p = 0; permit = 0; what = none; alive = false; n = 0; rows = 0; head = 0;
    busy[me] = false;
    goto end
}

proctype worker(byte me) {
    byte weight;       // > 0 while it claims
    byte p;            // pool at hand
    byte permit;       // number drawn, or number to change
    byte x, n;
    byte seen[4];      // number + 1 of each free lane that was found, 0 for others
    bool mine[4];      // locked to be claimed
    byte top;          // highest lane that was found
    bool alone;        // holds the pool's creation lock
    bool lowered;      // has found lanes above the pool's cap
    byte rows, head;   // of the permit to change
    bool alive;        // that permit was live when the last wait ended
    mtype what = none; // becomes of it

end:
    atomic {
        MY_TURN && calls < CALLS;
        calls++;
        if
        :: true -> // claim_permit: select from pglimit.endpoints
            if
            :: true
            :: cap == 2 -> cap = 1 // lowered a moment ago, for it matters to claims alone
            fi;
            capOf[me] = cap;
            capMost[me] = cap;
            d_step {
                for (x : 1 .. WORKERS) {
                    if :: capOf[x] > capMost[me] -> capMost[me] = capOf[x] :: else fi
                }
                x = 0
            }
            weight = 1;
            if
            :: true
            :: capOf[me] == 2 -> weight = 2 // else "never"
            fi;
#ifdef MUT_NUMBER_BEFORE_LOCK
            drawn++;
            permit = drawn;
#endif
            busy[me] = true;
            if
            :: true  // holder's pool, then shared pool
            :: p = 1 // shared pool alone
            fi
        :: LIVE(0) || LIVE(1) || LIVE(2) || LIVE(3) ->
            if
            :: LIVE(0) -> permit = number[0]
            :: LIVE(1) -> permit = number[1]
            :: LIVE(2) -> permit = number[2]
            :: LIVE(3) -> permit = number[3]
            fi;
            // a live permit has all of its rows: row_count, and the row with claimed_at
            rows = OF_PERMIT(0) + OF_PERMIT(1) + OF_PERMIT(2) + OF_PERMIT(3);
            head = (OF_PERMIT(0) -> 0 : (OF_PERMIT(1) -> 1 : (OF_PERMIT(2) -> 2 : 3)));
            if :: what = renewed :: what = released fi;
            busy[me] = true;
            goto ask
        fi
    }

find: // _take_lanes: select from _find_lanes
    atomic {
        WORTH_A_LOOK;
        if
        :: NO_ROOM && lowered && !alone -> goto create // to retire it
        :: NO_ROOM && lowered && alone ->
            assert(change[FIRST] != retired || lock[FIRST] == me);
            assert(change[SECOND] != retired || lock[SECOND] == me); // else it is not in use
            goto refuse
        :: NO_ROOM && !lowered -> goto refuse
        :: else
        fi;
        if
#ifndef MUT_NO_RETIRE
        :: TOP > CAP && !lowered ->
            lowered = true;
            if
            :: RETIRES -> goto retire
            :: else -> goto find
            fi
#endif
        :: else
        fi;
        if
        :: weight > 1 && !alone -> goto create
        :: else
        fi;
        top = TOP;
        seen[FIRST] = (CLAIMABLE(FIRST) -> number[FIRST] + 1 : 0);
        seen[SECOND] = (CLAIMABLE(SECOND) -> number[SECOND] + 1 : 0)
    }

take: // _take_lanes: select … limit … for update of p skip locked, row by row
    atomic {
        if
        :: LOCKABLE(FIRST) -> lock[FIRST] = me; mine[FIRST] = true
        :: LOCKABLE(SECOND) -> lock[SECOND] = me; mine[SECOND] = true
        :: !LOCKABLE(FIRST) && !LOCKABLE(SECOND) ->
            seen[FIRST] = 0;
            seen[SECOND] = 0;
            if
            :: top >= CAP && RETIRES -> top = 0; goto retire
            :: top >= CAP && !RETIRES -> top = 0; goto find
            :: top < CAP && alone -> goto insert
            :: top < CAP && !alone -> top = 0; goto create
            fi
        fi;
        if
        :: mine[FIRST] + mine[SECOND] < weight -> goto take
        :: else
        fi;
        seen[FIRST] = 0;
        seen[SECOND] = 0;
        top = 0;
        alone = false;
        lowered = false;
        if
        :: p == 0 -> p = 1; goto find
        :: else -> goto grant
        fi
    }

retire: // _retire_lapsed: update … where expires_at <= clock_timestamp() … for update skip locked
    atomic {
        d_step {
            for (x : FIRST .. SECOND) {
                if
                :: there[x] && !live[x] && !over[x] && lock[x] == 0 -> lock[x] = me; change[x] = retired
                :: else
                fi
            }
            x = 0
        }
        goto find
    }

create: // _lock_creation: select … for update, the only wait of a claim
#ifdef MUT_LANE_CREATION_LOCKS
    if
    :: atomic { creation[FIRST] == 0 -> creation[FIRST] = me };
        atomic { creation[SECOND] == 0 -> creation[SECOND] = me }
    :: atomic { creation[SECOND] == 0 -> creation[SECOND] = me };
        atomic { creation[FIRST] == 0 -> creation[FIRST] = me }
    fi;
    atomic { alone = true; goto find }
#else
    atomic {
        creation[p] == 0 -> creation[p] = me;
        alone = true;
        if
        :: RETIRES -> goto retire
        :: else -> goto find
        fi
    }
#endif

insert: // _take_lanes: insert into pglimit.permits
    atomic {
        d_step {
            for (n : FIRST + top .. FIRST + CAP - 1) {
                assert(!there[n] && lock[n] == 0); // primary key
                change[n] = inserted;
                lock[n] = me
            }
            n = 0;
            top = 0
        }
        goto find
    }

grant: // claim_permit: update … permit_id = nextval
    atomic {
#ifndef MUT_NUMBER_BEFORE_LOCK
        drawn++;
        permit = drawn;
#endif
        d_step {
            for (x : 0 .. 3) {
                if
                :: mine[x] ->
                    assert(!live[x]);           // nobody loses a live permit
                    assert(permit > number[x]); // the number grows
                    change[x] = taken;
                    mine[x] = false
                :: else
                fi
            }
            x = 0
        }
    }
    atomic {
        if
        :: commit(); assert(live[2] + live[3] <= capMost[me] && CAPS_KEPT)
        :: unlock() // the caller's rollback: nobody hears of the permit
        fi;
        finish()
    }

refuse:
    atomic {
        d_step {
            for (x : 0 .. 3) {
                mine[x] = false;
                seen[x] = 0
            }
            alone = false;
            lowered = false
        }
        commit(); // lanes that were made stay
        finish()
    }

ask:
    atomic {
        if
        :: !(OF_PERMIT(head) && live[head]) -> finish() // "lapsed", without a lock
        :: else
        fi;
        if
        :: rows > 1 -> goto lockHead
        :: else
        fi
    }

    // renew_permit, release_permit: update … where row_count = 1 and expires_at > clock_timestamp()
    atomic {
        lock[head] == 0;
        if
#ifdef MUT_NO_RENEWAL_RECHECK
        :: OF_PERMIT(head) ->
#else
        :: OF_PERMIT(head) && live[head] ->
#endif
            alive = live[head];
            lock[head] = me;
            n = 1;
            goto act
        :: else -> finish()
        fi
    }

lockHead: // _lock_permit: select … for update
    atomic {
        lock[head] == 0;
        if
        :: OF_PERMIT(head) -> lock[head] = me; alive = live[head]
        :: else -> finish()
        fi
    }

lockRest: // _lock_permit: if expires_at <= clock_timestamp()
    atomic {
        if
#ifndef MUT_NO_RENEWAL_RECHECK
        :: !live[head] -> unlock(); finish()
#endif
        :: else
        fi
    }
    // _lock_permit: select … for update skip locked
    atomic {
        d_step {
            n = 0;
            for (x : 0 .. 3) {
                if :: OTHERS_FREE(x) -> lock[x] = me :: else fi;
                if :: OF_PERMIT(x) && lock[x] == me -> n++ :: else fi
            }
            x = 0
        }
        if
        :: n == rows -> goto act
        :: else -> n = 0
        fi
    }
    atomic { // a retry would do something else than retry
        OTHERS_FREE(0) || OTHERS_FREE(1) || OTHERS_FREE(2) || OTHERS_FREE(3) || !live[head];
        alive = live[head];
        goto lockRest
    }

act: // renew_permit, release_permit: update … where permit_id = …
    atomic {
        assert(alive);     // a renewal does not revive what lapsed while it waited
        assert(n == rows); // all rows or none
        d_step {
            n = 0;
            alive = false;
            for (x : 0 .. 3) {
                if
                :: OF_PERMIT(x) ->
                    assert(lock[x] == me);
                    change[x] = what
                :: else
                fi
            }
            x = 0
        }
    }
    atomic {
        commit();
        assert(CAPS_KEPT);
        finish()
    }
}

// purge, of one pool. Any lapsed row counts as idle for long enough.
#define IDLE(x) (there[x] && !live[x])
#define MISSED(x) (there[x] && lock[x] != PURGER)

proctype purge() {
    byte me = PURGER;
    byte permit; // none: commit knows the word
    byte p, x;

end:
    atomic { // select distinct pool; then its creation lock, for update skip locked
        if
#ifdef MUT_PURGE_WITHOUT_CREATION_LOCK
        :: IDLE(0) || IDLE(1) -> p = 0
        :: IDLE(2) || IDLE(3) -> p = 1
#else
        :: (IDLE(0) || IDLE(1)) && creation[0] == 0 -> p = 0; creation[0] = me
        :: (IDLE(2) || IDLE(3)) && creation[1] == 0 -> p = 1; creation[1] = me
#endif
        fi
    }
    atomic { // with locked as (select … for update skip locked) delete … where all are locked
        d_step {
            if :: IDLE(FIRST) && lock[FIRST] == 0 -> lock[FIRST] = me :: else fi;
            if :: IDLE(SECOND) && lock[SECOND] == 0 -> lock[SECOND] = me :: else fi;
            if
#ifndef MUT_PURGE_SINGLE_LANE
            :: MISSED(FIRST) || MISSED(SECOND) -> skip
#endif
            :: else ->
                if :: lock[FIRST] == me -> change[FIRST] = deleted :: else fi;
                if :: lock[SECOND] == me -> change[SECOND] = deleted :: else fi
            fi
        }
    }
    atomic {
        commit();
        p = 0;
        goto end
    }
}

// The clock: a lease ends, in all rows at once.
proctype clock() {
    byte k, x;

end:
    do
    :: atomic {
        LIVE(0) || LIVE(1) || LIVE(2) || LIVE(3);
        if
        :: LIVE(0) -> k = number[0]
        :: LIVE(1) -> k = number[1]
        :: LIVE(2) -> k = number[2]
        :: LIVE(3) -> k = number[3]
        fi;
        d_step {
            for (x : 0 .. 3) {
                if :: number[x] == k -> live[x] = false :: else fi
            }
            x = 0;
            k = 0
        }
    }
    od
}

init {
    atomic {
        run worker(1);
        run worker(2);
        run worker(3);
        run purge();
#ifndef TIME_STANDS_STILL
        run clock()
#endif
    }
}
