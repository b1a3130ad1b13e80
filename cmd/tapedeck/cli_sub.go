package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect/v2"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/client"
)

type subCmd struct {
	clientFlags
	Ref    string        `arg:"" name:"topic/name" help:"The subscription to read."`
	Follow bool          `short:"f" help:"Go on with messages to come, until interrupted."`
	Seek   string        `help:"First move the cursors: ${seek_help}" placeholder:"TARGET"`
	Max    int           `help:"End after so many messages; 0: no limit."`
	Create bool          `help:"Create the subscription, from the earliest message on, if there is none."`
	Member string        `help:"Name of this reader within the subscription; by default one is drawn."`
	Wait   time.Duration `help:"Without --follow: end when nothing came for so long." default:"5s" least:"1ms"`
}

// Run prints messages and acknowledges them.
func (c *subCmd) Run(ctx context.Context, std *stdio) error {
	return c.with(ctx, std, func(ctx context.Context, cl *client.Client, p *printer) error {
		if c.Create {
			req, err := createRequest(c.Ref, "earliest")
			if err != nil {
				return err
			}
			var e *client.Error
			_, err = cl.CreateSubscription(ctx, req)
			if err != nil && (!errors.As(err, &e) || e.Code != connect.CodeAlreadyExists) {
				return err
			}
		}
		if c.Seek != "" {
			if _, err := seek(ctx, cl, c.Ref, c.Seek, nil); err != nil {
				return err
			}
		}
		return c.each(ctx, cl, std, p.message)
	})
}

func (c *subCmd) options(std *stdio) []client.SubscriberOption {
	options := []client.SubscriberOption{
		client.WithSkipped(func(partition uint32, from, to uint64) {
			fmt.Fprintf(std.Err, "partition %d: offsets %d to %d were deleted by retention before they were read\n",
				partition, from, to-1)
		}),
		client.WithTrouble(func(err error) { fmt.Fprintln(std.Err, "trying again:", err) }),
	}
	if c.Member != "" {
		options = append(options, client.WithMember(c.Member, false))
	}
	return options
}

// each takes messages until the end that was asked for, and acknowledges those
// that were done without an error.
func (c *subCmd) each(ctx context.Context, cl *client.Client, std *stdio, do func(*client.Message) error) error {
	s, err := cl.Subscribe(ctx, c.Ref, c.options(std)...)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ends := map[uint32]uint64{}
	var idle *time.Timer
	if !c.Follow {
		if ends, err = c.ends(ctx, cl); err != nil || len(ends) == 0 {
			return err
		}
		idle = time.AfterFunc(c.Wait, stop)
		defer idle.Stop()
	}
	count := 0
	for m, err := range s.Messages(ctx) {
		if err != nil {
			return err
		}
		if err := do(m); err != nil {
			return err // not acknowledged: whoever reads next gets it
		}
		m.Ack()
		if count++; count == c.Max {
			return nil
		}
		if idle != nil {
			idle.Reset(c.Wait)
			if end, ok := ends[m.Partition]; ok && m.Offset+1 >= end {
				delete(ends, m.Partition)
			}
			if len(ends) == 0 {
				return nil
			}
		}
	}
	return nil
}

// ends are the partitions with unread messages, and where these end now.
func (c *subCmd) ends(ctx context.Context, cl *client.Client) (map[uint32]uint64, error) {
	s, err := cl.GetSubscription(ctx, &tapedeckv1.GetSubscriptionRequest{Subscription: c.Ref})
	if err != nil {
		return nil, err
	}
	ends := map[uint32]uint64{}
	for _, x := range s.GetPartitions() {
		if x.GetCursor() < x.GetHighWatermark() || x.GetError() != nil {
			ends[x.GetPartition()] = x.GetHighWatermark()
		}
	}
	return ends, nil
}
