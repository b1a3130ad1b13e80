// Package session is the client's half of the protocol, pure: a Producer turns
// messages into batches with sequences and brings each to one outcome; a
// Consumer pulls ahead, hands messages out, and acks what was processed. The Go
// client wraps them in goroutines, the simulator's clients are these.
//
// Duties of whoever drives one:
//   - Call Poll at or before the moment Next names, and carry out what it
//     returns in any order and at the same time.
//   - Call Done exactly once per Send: with the answer, or with the error; once
//     Send.Deadline has passed, with Code DeadlineExceeded. An answer after that is dropped.
//   - Use one goroutine at a time. No method blocks.
//
// Invariants:
//   - A batch keeps partition, sequence and messages over all its attempts, and
//     (producer, epoch, partition, sequence) never names two different batches.
//   - Of one partition, batch n+1 is never sent for the first time before batch n was.
//   - Every message accepted by Add gets exactly one Outcome.
//   - A consumer acks an offset only after it, and every offset handed out
//     before it in that run of the partition, was processed.
//   - Messages held stay within the configured bounds.
//
// Moments are model.Mono of the driver's clock; sizes are bytes.
package session

import (
	"math/rand/v2"
	"time"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// Send is a request to make now.
type Send struct {
	ID       uint64 // unique within its Producer or Consumer, from 1
	Call     call.Client
	Deadline time.Duration // from now
	Route    Route
}

// Route says what a request is about, so that it can go straight to the node
// that leads it. It is a hint: any node will do.
type Route struct {
	Topic        string
	Partition    model.Partition
	HasPartition bool
	Subscription string
}

// ReasonNotSent marks an error of the driver: the request did not leave, so it
// cannot have had an effect. It never comes from a broker.
const ReasonNotSent model.Reason = "NOT_SENT"

// fate is what an error says about the request it answers.
type fate uint8

const (
	refused fate = iota // had no effect and will have none; the same again may succeed
	open                // may have had its effect, or have it yet
	final               // had no effect, and the same again will fail alike
)

// judge reads an error's fate. What it does not know is open: an error made up
// on the way, by a proxy or a closed connection, proves nothing.
func judge(err *model.Error) fate {
	switch err.Reason {
	case model.ReasonThrottled, model.ReasonDiskFull, model.ReasonNoLeader, model.ReasonStaleMap,
		model.ReasonNotLeader, ReasonNotSent, model.ReasonSequenceGap, model.ReasonSequenceUnknown:
		return refused
	case model.ReasonUnknownOutcome:
		return open
	case model.ReasonFenced, model.ReasonSequenceTooOld, model.ReasonOffsetTooOld, model.ReasonOffsetTooNew:
		return final
	}
	switch err.Code {
	case model.InvalidArgument, model.NotFound, model.AlreadyExists, model.PermissionDenied,
		model.FailedPrecondition, model.OutOfRange, model.Unimplemented, model.Unauthenticated:
		return final
	case model.ResourceExhausted:
		return refused
	}
	return open
}

// Final says that the same request would fail alike again.
func Final(err *model.Error) bool { return judge(err) == final }

// backoff draws waiting times: exponential with full jitter, on top of what the
// broker asked for.
type backoff struct {
	min, max time.Duration
	rand     *rand.Rand
}

func newBackoff(minimum, maximum time.Duration, seed uint64) backoff {
	return backoff{min: minimum, max: maximum, rand: rand.New(rand.NewPCG(seed, 0x7461706564656b))}
}

// after gives the wait after the nth failure in a row, n from 1.
func (b *backoff) after(n int, err *model.Error) time.Duration {
	ceiling := b.max
	if n < 20 && b.min<<(n-1) < b.max {
		ceiling = b.min << (n - 1)
	}
	wait := time.Duration(b.rand.Int64N(int64(ceiling) + 1))
	if err != nil && err.RetryAfter > 0 {
		wait += min(err.RetryAfter, time.Minute)
	}
	return wait
}

// task is a request of which at most one is under way, tried until it succeeds.
type task struct {
	id       uint64     // of the Send under way, 0: none
	at       model.Mono // not before
	failures int
	err      *model.Error // of the last failure, until a success
}

// hopeless says that the last failure was final.
func (t *task) hopeless() bool { return t.err != nil && judge(t.err) == final }

func (t *task) ready(now model.Mono) bool { return t.id == 0 && now >= t.at }

func (t *task) failed(now model.Mono, b *backoff, err *model.Error) {
	t.id = 0
	t.failures++
	t.err = err
	t.at = now.Add(b.after(t.failures, err))
}

func (t *task) succeeded() { *t = task{at: t.at} }

// next is when the task can be started; Never while it is under way.
func (t *task) next() model.Mono {
	if t.id != 0 {
		return model.Never
	}
	return t.at
}

func def[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}
