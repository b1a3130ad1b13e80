package live

import (
	"context"
	"time"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// Patience with calls.
const (
	// defaultDeadline is for calls whose caller names none; a long-poll's wait comes on top.
	defaultDeadline = 30 * time.Second
	// maxWait bounds a long-poll; an empty answer comes then.
	maxWait = 5 * time.Minute
	// answerMargin is how much before the caller's deadline the shard gives up, at
	// most: so that the caller learns why.
	answerMargin = 50 * time.Millisecond
	stopRetry    = 500 * time.Millisecond
)

func stopping() *model.Error {
	return &model.Error{Code: model.Unavailable, RetryAfter: stopRetry, Message: "this node is stopping; go to another"}
}

func unknownOutcome() *model.Error {
	return &model.Error{Code: model.Unavailable, Reason: model.ReasonUnknownOutcome, RetryAfter: stopRetry,
		Message: "this node stopped before the outcome was known"}
}

func throttled() *model.Error {
	return model.Reasoned(model.ResourceExhausted, model.ReasonThrottled, 100*time.Millisecond,
		"this node has %d requests waiting; slow down", maxInboxRequests)
}

// changes says whether a call may have changed something when its outcome is not known.
func changes(c call.Client) bool {
	switch c.(type) {
	case *call.Fetch, *call.Pull, *call.GetTopic, *call.ListTopics, *call.GetSubscription,
		*call.ListSubscriptions, *call.GetCluster:
		return false
	}
	return true
}

// ask takes a call through the shard. wait is how long the call may wait for
// something to come, for a long-poll.
func (n *Node) ask(ctx context.Context, c call.Client, wait time.Duration) (call.ClientResult, *model.Error) {
	now := time.Now()
	patience := defaultDeadline + wait
	if deadline, ok := ctx.Deadline(); ok {
		left := deadline.Sub(now)
		patience = left - min(answerMargin, left/10)
	}
	if n.loop.requests.Add(1) > maxInboxRequests {
		n.loop.requests.Add(-1)
		return nil, throttled()
	}
	r := &request{
		call: c, done: make(chan struct{}),
		deadline: model.Mono(now.Sub(n.loop.began)).Add(patience),
	}
	n.loop.inbox.put(item{req: r})
	var drained <-chan struct{}
	if wait > 0 {
		drained = n.draining
	}
	select {
	case <-r.done:
		return r.result, r.err
	case <-n.loop.ended:
		// The loop may have answered just before it ended; closeLanes answers the rest.
		select {
		case <-r.done:
			return r.result, r.err
		case <-n.stopped:
			return nil, stopping()
		}
	case <-drained:
		n.loop.inbox.put(item{cancel: r})
		return nil, stopping()
	case <-ctx.Done():
	}
	n.loop.inbox.put(item{cancel: r})
	select {
	case <-r.done: // cancelled too late
		return r.result, r.err
	default:
	}
	if context.Cause(ctx) == context.Canceled {
		return nil, model.Errorf(model.Canceled, "the caller gave up")
	}
	took := time.Since(now).Round(time.Millisecond)
	err := model.Errorf(model.DeadlineExceeded, "the caller's time was up after %s", took)
	if changes(c) {
		err.Reason = model.ReasonUnknownOutcome
	}
	return nil, err
}

// boundWait cuts a long-poll's wait so that an empty answer comes before the
// caller's deadline.
func boundWait(ctx context.Context, wait time.Duration) time.Duration {
	wait = min(max(wait, 0), maxWait)
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		wait = min(wait, max(0, left-left/10-answerMargin))
	}
	return wait
}

// askFor is ask for a call whose answer is of type T.
func askFor[T call.ClientResult](
	ctx context.Context, n *Node, c call.Client, wait time.Duration,
) (answer T, err error) {
	result, failure := n.ask(ctx, c, wait)
	if failure != nil {
		return answer, n.wireError(failure)
	}
	answer, ok := result.(T)
	if !ok {
		return answer, n.wireError(model.Errorf(model.Internal, "%T was answered by %T", c, result))
	}
	return answer, nil
}
