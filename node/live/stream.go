package live

import (
	"context"
	"time"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/api/tapedeck/v1/tapedeckv1connect"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

const (
	// streamWait is the long-poll of one pull of a stream; each renews the session.
	streamWait = 2 * time.Second
	// throttlePause is how often a stream at its in-flight limit looks for acks.
	throttlePause = 50 * time.Millisecond
)

// StreamPull implements PubSubService: pulls, one after the other, until the
// caller leaves or this node stops. Errors end the stream; its caller comes again.
func (n pubsub) StreamPull(
	ctx context.Context, req *tapedeckv1.StreamPullRequest, out tapedeckv1connect.PubSubServiceStreamPullServerStream,
) error {
	pull := &call.Pull{
		Subscription: req.GetSubscription(), Member: model.MemberID(req.GetMember()), Static: req.GetStatic(),
		MaxMessages: req.GetMaxMessages(), MaxBytes: req.GetMaxBytes(),
	}
	for sequence := uint64(1); ; sequence++ {
		room, err := n.room(ctx, req.GetMaxInFlight(), pull)
		if err != nil {
			return err
		}
		next := *pull
		next.PullSequence = sequence
		next.Wait = boundWait(ctx, streamWait)
		if room > 0 && (next.MaxMessages == 0 || next.MaxMessages > room) {
			next.MaxMessages = room
		}
		r, err := askFor[*call.PullResult](ctx, n.Node, &next, next.Wait)
		if err != nil {
			return err
		}
		pull.Member = r.Member
		if sequence > 1 && len(r.Ranges) == 0 && len(r.Skipped) == 0 {
			continue
		}
		res, failure := fromPull(req.GetRawBatches(), r)
		if failure != nil {
			return n.wireError(failure)
		}
		if err := out.Send(res); err != nil {
			return err
		}
	}
}

// room waits until fewer than limit messages are sent and not acked, and says
// how many more there may be; 0: no limit.
func (n pubsub) room(ctx context.Context, limit uint32, pull *call.Pull) (uint32, error) {
	if limit == 0 || pull.Member == "" {
		return limit, nil
	}
	ticker := time.NewTicker(throttlePause)
	defer ticker.Stop()
	for {
		r, err := askFor[*call.GetSubscriptionResult](ctx, n.Node,
			&call.GetSubscription{Subscription: pull.Subscription}, 0)
		if err != nil {
			return 0, err
		}
		var leased uint64
		for i := range r.Description.Cursors {
			if c := &r.Description.Cursors[i]; c.Owner == pull.Member {
				leased += c.Leased
			}
		}
		if leased < uint64(limit) {
			return limit - uint32(leased), nil
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-n.draining:
			return 0, n.wireError(stopping())
		case <-ticker.C:
		}
		// The stream sends nothing meanwhile; its member stays.
		_, err = askFor[*call.Empty](ctx, n.Node, &call.ExtendLease{
			Subscription: pull.Subscription, Member: pull.Member, Generation: r.Description.Generation,
		}, 0)
		if err != nil {
			return 0, err
		}
	}
}
