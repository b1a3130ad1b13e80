package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/client"
)

type subscriptionCommands struct {
	Create   subscriptionCreateCmd `cmd:"" help:"Create a subscription. The same again succeeds."`
	Get      subscriptionGetCmd    `cmd:"" help:"Show where a subscription is."`
	Describe subscriptionGetCmd    `cmd:"" help:"The same as get."`
	List     subscriptionListCmd   `cmd:"" help:"List subscriptions."`
	Update   subscriptionUpdateCmd `cmd:"" help:"Change a subscription's settings."`
	Delete   subscriptionDeleteCmd `cmd:"" help:"Delete a subscription and its cursors for good."`
	Seek     subscriptionSeekCmd   `cmd:"" help:"Move a subscription's cursors: replay, or skip."`
	Snapshot snapshotCommands      `cmd:"" help:"Keep cursors by name, to seek back to."`
}

type subscriptionCreateCmd struct {
	clientFlags
	Ref            string        `arg:"" name:"topic/name" help:"The topic, and the new subscription's name."`
	From           string        `help:"${from_help}" default:"earliest"`
	Mode           string        `help:"ordered, or shared: members compete." enum:"ordered,shared" default:"ordered"`
	KeyOrdered     bool          `help:"With --mode shared: messages of one key to one member at a time, in order."`
	MemberLimit    uint32        `help:"Unacknowledged messages of a member at most; 0: 10000." placeholder:"N"`
	Limit          uint32        `help:"Unacknowledged messages of all members at most; 0: no limit." placeholder:"N"`
	AckDeadline    time.Duration `help:"How long a message may be unacknowledged; 0: 30s."`
	SessionTimeout time.Duration `help:"After how long a silent member loses what it holds; 0: 10s."`
	MaxAttempts    uint32        `help:"Deliveries before a message is a dead letter; 0: any." placeholder:"N"`
	DeadLetter     string        `name:"dead-letter-topic" help:"The topic it goes to." placeholder:"TOPIC"`
	MinBackoff     time.Duration `help:"How long a message that was given back waits at first; 0: 100ms."`
	MaxBackoff     time.Duration `help:"How long it waits at most; 0: 1m."`
	Filter         string        `help:"${filter_help}" placeholder:"TEXT" everything:"true"`
}

// Run creates the subscription.
func (c *subscriptionCreateCmd) Run(ctx context.Context, std *stdio) error {
	return c.with(ctx, std, func(ctx context.Context, cl *client.Client, p *printer) error {
		req, err := createRequest(c.Ref, c.From)
		if err != nil {
			return err
		}
		req.AckDeadline, req.SessionTimeout = optional(c.AckDeadline), optional(c.SessionTimeout)
		req.MaxDeliveryAttempts, req.DeadLetterTopic = c.MaxAttempts, c.DeadLetter
		req.MinBackoff, req.MaxBackoff = optional(c.MinBackoff), optional(c.MaxBackoff)
		req.Mode, req.KeyOrdered = tapedeckv1.Mode_MODE_ORDERED, c.KeyOrdered
		if c.Mode == "shared" {
			req.Mode = tapedeckv1.Mode_MODE_SHARED
		}
		req.MaxInFlightPerMember, req.MaxInFlight = c.MemberLimit, c.Limit
		req.Filter = c.Filter
		resp, err := cl.CreateSubscription(ctx, req)
		if err != nil {
			return err
		}
		return p.proto(resp, func() error { return p.value(nil, "subscription %s begins at %s", c.Ref, c.From) })
	})
}

func createRequest(ref, from string) (*tapedeckv1.CreateSubscriptionRequest, error) {
	topic, name, ok := strings.Cut(ref, "/")
	if !ok {
		return nil, fmt.Errorf("%q is not of the form TOPIC/NAME", ref)
	}
	req := &tapedeckv1.CreateSubscriptionRequest{Topic: topic, Name: name}
	switch from {
	case "", "earliest":
		req.Start = &tapedeckv1.CreateSubscriptionRequest_Earliest{Earliest: &emptypb.Empty{}}
	case "latest":
		req.Start = &tapedeckv1.CreateSubscriptionRequest_Latest{Latest: &emptypb.Empty{}}
	default:
		at, ok := parseMoment(from, time.Now())
		if !ok {
			return nil, fmt.Errorf("--from: %q is neither earliest, latest, a moment such as %s, nor a while such as 10m",
				from, time.Now().Format(time.RFC3339))
		}
		req.Start = &tapedeckv1.CreateSubscriptionRequest_Time{Time: timestamppb.New(at)}
	}
	return req, nil
}

// parseMoment reads a moment, a day, or how long ago.
func parseMoment(text string, now time.Time) (time.Time, bool) {
	if d, err := parseSpan(text); err == nil && d > 0 {
		return now.Add(-d), true
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateTime, "2006-01-02T15:04:05", time.DateOnly} {
		if at, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return at, true
		}
	}
	return time.Time{}, false
}

type subscriptionGetCmd struct {
	clientFlags
	Ref string `arg:"" name:"topic/name" help:"The subscription."`
}

// Run describes the subscription.
func (c *subscriptionGetCmd) Run(ctx context.Context, std *stdio) error {
	return c.with(ctx, std, func(ctx context.Context, cl *client.Client, p *printer) error {
		s, err := cl.GetSubscription(ctx, &tapedeckv1.GetSubscriptionRequest{Subscription: c.Ref})
		if err != nil {
			return err
		}
		return p.proto(s, func() error { return describeSubscription(p, s) })
	})
}

func describeSubscription(p *printer, s *tapedeckv1.GetSubscriptionResponse) error {
	var lag uint64
	rows := make([][]any, 0, len(s.GetPartitions()))
	for _, x := range s.GetPartitions() {
		lag += x.GetLag()
		state := "ok"
		if x.GetError() != nil {
			state = x.GetError().GetMessage()
		}
		rows = append(rows, []any{x.GetPartition(), x.GetCursor(), x.GetHighWatermark(), x.GetLag(), x.GetLeased(),
			ago(x.GetOldestUnackedAge()), ago(x.GetRetentionLeft()), x.GetOwner(), state})
	}
	mode := modeName(s.GetMode())
	if s.GetKeyOrdered() {
		mode += ", by key"
	}
	p.facts("subscription", s.GetTopic()+"/"+s.GetName(), "created", moment(s.GetCreateTime()), "mode", mode,
		"ack deadline", ago(s.GetAckDeadline()), "session timeout", ago(s.GetSessionTimeout()),
		"max attempts", attempts(s.GetMaxDeliveryAttempts()), "dead-letter topic", cmp.Or(s.GetDeadLetterTopic(), "none"),
		"filter", cmp.Or(s.GetFilter(), "none"), "generation", s.GetGeneration(),
		"members", len(s.GetMembers()), "lag", lag)
	if err := p.table("PARTITION CURSOR END LAG LEASED OLDEST KEPT-FOR OWNER STATE", rows); err != nil {
		return err
	}
	if len(s.GetMembers()) == 0 {
		return nil
	}
	fmt.Fprintln(p.out)
	rows = rows[:0]
	for _, m := range s.GetMembers() {
		rows = append(rows, []any{m.GetId(), moment(m.GetLastSeen()), strings.Trim(fmt.Sprint(m.GetPartitions()), "[]")})
	}
	return p.table("MEMBER LAST-SEEN PARTITIONS", rows)
}

// attempts is how often a message is delivered at most.
func attempts(most uint32) string {
	if most == 0 {
		return "any"
	}
	return strconv.FormatUint(uint64(most), 10)
}

func modeName(m tapedeckv1.Mode) string {
	return strings.ToLower(strings.TrimPrefix(m.String(), "MODE_"))
}

type subscriptionListCmd struct {
	clientFlags
	Topic string `arg:"" optional:"" help:"Only of this topic."`
}

// Run lists subscriptions.
func (c *subscriptionListCmd) Run(ctx context.Context, std *stdio) error {
	return c.with(ctx, std, func(ctx context.Context, cl *client.Client, p *printer) error {
		all, err := cl.ListSubscriptions(ctx, c.Topic)
		if err != nil {
			return err
		}
		return p.proto(&tapedeckv1.ListSubscriptionsResponse{Subscriptions: all}, func() error {
			rows := make([][]any, 0, len(all))
			for _, s := range all {
				rows = append(rows, []any{s.GetTopic() + "/" + s.GetName(), modeName(s.GetMode()), ago(s.GetAckDeadline()),
					attempts(s.GetMaxDeliveryAttempts()), s.GetDeadLetterTopic(), moment(s.GetCreateTime()), s.GetFilter()})
			}
			return p.table("SUBSCRIPTION MODE ACK-DEADLINE ATTEMPTS DEAD-LETTERS CREATED FILTER", rows)
		})
	})
}

type subscriptionUpdateCmd struct {
	clientFlags
	Ref            string         `arg:"" name:"topic/name" help:"The subscription."`
	AckDeadline    *time.Duration `help:"How long a message may be unacknowledged."`
	SessionTimeout *time.Duration `help:"After how long a silent member loses its partitions."`
	Filter         *string        `help:"Which messages are wanted; true: all." placeholder:"TEXT" everything:"true"`
}

// Run changes what flags were given for.
func (c *subscriptionUpdateCmd) Run(ctx context.Context, std *stdio) error {
	return c.with(ctx, std, func(ctx context.Context, cl *client.Client, p *printer) error {
		if c.AckDeadline == nil && c.SessionTimeout == nil && c.Filter == nil {
			return errors.New("nothing changed: give --ack-deadline, --session-timeout or --filter")
		}
		req := &tapedeckv1.UpdateSubscriptionRequest{Subscription: c.Ref, Filter: c.Filter}
		if c.AckDeadline != nil {
			req.AckDeadline = durationpb.New(*c.AckDeadline)
		}
		if c.SessionTimeout != nil {
			req.SessionTimeout = durationpb.New(*c.SessionTimeout)
		}
		// What it was is for the text alone: the change is made in any case.
		topic, _, _ := strings.Cut(c.Ref, "/")
		all, err := cl.ListSubscriptions(ctx, topic)
		if err != nil {
			return err
		}
		resp, err := cl.UpdateSubscription(ctx, req)
		if err != nil {
			return err
		}
		return p.proto(resp, func() error {
			if slices.ContainsFunc(all, c.same) {
				return p.value(nil, "subscription %s: nothing changed, it was so already", c.Ref)
			}
			return p.value(nil, "subscription %s changed", c.Ref)
		})
	})
}

// same says that this is the subscription, and has all that is asked for.
func (c *subscriptionUpdateCmd) same(s *tapedeckv1.Subscription) bool {
	return s.GetTopic()+"/"+s.GetName() == c.Ref && holds(c.AckDeadline, s.GetAckDeadline().AsDuration()) &&
		holds(c.SessionTimeout, s.GetSessionTimeout().AsDuration()) && holds(c.Filter, s.GetFilter())
}

type subscriptionDeleteCmd struct {
	clientFlags
	Ref string `arg:"" name:"topic/name" help:"The subscription."`
}

// Run deletes the subscription.
func (c *subscriptionDeleteCmd) Run(ctx context.Context, std *stdio) error {
	return c.with(ctx, std, func(ctx context.Context, cl *client.Client, p *printer) error {
		if err := cl.DeleteSubscription(ctx, c.Ref); err != nil {
			return err
		}
		return p.value(struct{}{}, "subscription %s deleted", c.Ref)
	})
}

type subscriptionSeekCmd struct {
	clientFlags
	Ref        string   `arg:"" name:"topic/name" help:"The subscription."`
	Target     string   `arg:"" optional:"" help:"${seek_help}"`
	Snapshot   string   `help:"Where the cursors were when this snapshot was taken." placeholder:"NAME"`
	Partitions []uint32 `help:"Only these partitions." placeholder:"N"`
}

// Run moves the cursors.
func (c *subscriptionSeekCmd) Run(ctx context.Context, std *stdio) error {
	return c.with(ctx, std, func(ctx context.Context, cl *client.Client, p *printer) error {
		if (c.Target == "") == (c.Snapshot == "") {
			return errors.New("give either where to seek to or --snapshot")
		}
		var resp *tapedeckv1.SeekResponse
		var err error
		if c.Snapshot != "" {
			resp, err = cl.Seek(ctx, &tapedeckv1.SeekRequest{Subscription: c.Ref, Partitions: c.Partitions,
				Target: &tapedeckv1.SeekRequest_Snapshot{Snapshot: c.Snapshot}})
		} else {
			resp, err = seek(ctx, cl, c.Ref, c.Target, c.Partitions)
		}
		if err != nil {
			return err
		}
		return p.proto(resp, func() error {
			rows := make([][]any, 0, len(resp.GetCursors()))
			for _, x := range resp.GetCursors() {
				rows = append(rows, []any{x.GetPartition(), x.GetCursor()})
			}
			return p.table("PARTITION CURSOR", rows)
		})
	})
}

// seek moves a subscription's cursors to what a person wrote.
func seek(ctx context.Context, cl *client.Client, ref, target string, only []uint32) (*tapedeckv1.SeekResponse, error) {
	req := &tapedeckv1.SeekRequest{Subscription: ref, Partitions: only}
	switch target {
	case "earliest":
		req.Target = &tapedeckv1.SeekRequest_Earliest{Earliest: &emptypb.Empty{}}
		return cl.Seek(ctx, req)
	case "latest":
		req.Target = &tapedeckv1.SeekRequest_Latest{Latest: &emptypb.Empty{}}
		return cl.Seek(ctx, req)
	}
	if at, ok := parseMoment(target, time.Now()); ok {
		req.Target = &tapedeckv1.SeekRequest_Time{Time: timestamppb.New(at)}
		return cl.Seek(ctx, req)
	}
	offsets, all, err := parseOffsets(target)
	if err != nil {
		return nil, err
	}
	if len(offsets) == 0 {
		// One offset for all partitions, or for those named.
		if len(only) == 0 {
			s, err := cl.GetSubscription(ctx, &tapedeckv1.GetSubscriptionRequest{Subscription: ref})
			if err != nil {
				return nil, err
			}
			for _, x := range s.GetPartitions() {
				only = append(only, x.GetPartition())
			}
		}
		for _, n := range only {
			offsets = append(offsets, &tapedeckv1.SeekOffset{Partition: n, Offset: all})
		}
	}
	req.Partitions = nil
	req.Target = &tapedeckv1.SeekRequest_Offsets{Offsets: &tapedeckv1.SeekOffsets{Offsets: offsets}}
	return cl.Seek(ctx, req)
}

// parseOffsets reads OFFSET, or PARTITION:OFFSET,…
func parseOffsets(text string) (offsets []*tapedeckv1.SeekOffset, all uint64, err error) {
	if all, err = strconv.ParseUint(text, 10, 64); err == nil {
		return nil, all, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		partition, offset, ok := strings.Cut(part, ":")
		n, err1 := strconv.ParseUint(partition, 10, 32)
		o, err2 := strconv.ParseUint(offset, 10, 64)
		if !ok || err1 != nil || err2 != nil {
			return nil, 0, fmt.Errorf("%q is neither earliest, latest, a moment (%s), a while ago (10m), an offset (0) "+
				"nor offsets by partition (0:17,1:5)", text, time.Now().Format(time.RFC3339))
		}
		offsets = append(offsets, &tapedeckv1.SeekOffset{Partition: uint32(n), Offset: o})
	}
	return offsets, 0, nil
}
