package pgclient

// Algorithm is how a limit counts.
type Algorithm string

// AlgorithmFixedWindow counts in a window that begins with a subject's first hit and ends the limit's Per later.
const AlgorithmFixedWindow Algorithm = "fixed_window"

// Mode is what a limit or an endpoint does with its decisions.
type Mode string

const (
	ModeEnforce Mode = "enforce" // refuses what is over the limit
	ModeOff     Mode = "off"     // allows everything and records nothing
	ModeShadow  Mode = "shadow"  // allows what is over the limit, and counts it apart: to try a limit out
)

// OnOutage is what a limit or an endpoint wishes its callers to do while the database cannot be reached. It is theirs
// to do: an outage is an error here, never a refusal.
type OnOutage string

const (
	OnOutageAllow  OnOutage = "allow"  // right for a lockout
	OnOutageRefuse OnOutage = "refuse" // right for a paywall
)

// Reason says why an answer is what it is. A newer server may give reasons that are not among the constants, so decide
// by the answer itself.
type Reason string

// Reasons of decisions.
const (
	ReasonAllowed      Reason = "allowed"      // hit: within the limit
	ReasonEndpoint     Reason = "endpoint"     // claim: the endpoint's cap is in use
	ReasonGranted      Reason = "granted"      // claim: there was room in every pool
	ReasonHolder       Reason = "holder"       // claim: the holder's own cap is in use
	ReasonInstallation Reason = "installation" // claim: the cap over all endpoints is in use
	ReasonLimit        Reason = "limit"        // hit: the window's hits are used up
	ReasonNever        Reason = "never"        // the cost or weight is above the limit or cap itself: no wait helps
	ReasonOff          Reason = "off"          // allowed, for the limit is off
	ReasonOthers       Reason = "others"       // admit: not refused itself, but others that were wanted with it
	ReasonShadow       Reason = "shadow"       // allowed in mode shadow; it would have been refused
)

// Reasons of waiting, beside those of claims, ReasonLapsed (the ticket was not polled) and ReasonUnknown.
const (
	ReasonDeadline  Reason = "deadline"   // ticket: its time is over
	ReasonNoTicket  Reason = "no ticket"  // claim_permit in SQL: the ticket is another's, or over
	ReasonQueue     Reason = "queue"      // claim: others wait for the room there is
	ReasonQueueFull Reason = "queue full" // no ticket: so many wait already
	ReasonWaiting   Reason = "waiting"    // ticket: it was drawn
)

// Reasons of charges, holds and settlements, beside those of decisions, ReasonLapsed and ReasonUnknown.
const (
	ReasonAgain   Reason = "again"   // the hold was settled before
	ReasonCharged Reason = "charged" // counted, whatever was left
	ReasonDebt    Reason = "debt"    // the debt would be too great
	ReasonHeld    Reason = "held"    // the estimate is charged
	ReasonSettled Reason = "settled" // the charge is what it was in the end
)

// Reasons of releases and renewals.
const (
	ReasonLapsed     Reason = "lapsed"     // the lease had ended
	ReasonLate       Reason = "late"       // reassertion: the grace time after a crash is over, or nothing was lost
	ReasonNotHolder  Reason = "not holder" // the permit is another holder's
	ReasonReasserted Reason = "reasserted" // taken again after a crash of the database
	ReasonReleased   Reason = "released"
	ReasonRenewed    Reason = "renewed"
	ReasonUnknown    Reason = "unknown" // released before, purged, lost in a crash, or never granted
)
