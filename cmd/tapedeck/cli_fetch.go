package main

import (
	"context"
	"time"

	"github.com/tapedeck/tapedeck/client"
)

type fetchCmd struct {
	clientFlags
	Topic     string        `arg:"" help:"The topic to read."`
	Partition uint32        `help:"The partition to read." default:"0"`
	Offset    uint64        `help:"The first offset to read." default:"0"`
	Max       int           `help:"How many messages to print at most." default:"100" least:"1"`
	Wait      time.Duration `help:"How long to wait for a first message."`
}

// Run prints messages until there are no more, or enough.
func (c *fetchCmd) Run(ctx context.Context, std *stdio) error {
	return c.with(ctx, std, func(ctx context.Context, cl *client.Client, p *printer) error {
		next := c.Offset
		for left := c.Max; left > 0; {
			wait := c.Wait
			if next != c.Offset {
				wait = 0 // what was there is printed
			}
			r, err := cl.Fetch(ctx, client.FetchRequest{
				Topic: c.Topic, Partition: c.Partition, Offset: next, MaxMessages: uint32(min(left, 1000)), Wait: wait,
			})
			if err != nil {
				return err
			}
			for _, m := range r.Messages[:min(left, len(r.Messages))] {
				if err := p.message(m); err != nil {
					return err
				}
			}
			left -= len(r.Messages)
			if len(r.Messages) == 0 || r.Next >= r.HighWatermark {
				return nil
			}
			next = r.Next
		}
		return nil
	})
}
