package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"connectrpc.com/connect/v2"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/client"
)

// Attributes by which a dead letter says where it came from.
const (
	letterPrefix    = "tapedeck.dead-letter."
	letterTopic     = letterPrefix + "topic"
	letterPartition = letterPrefix + "partition"
	letterOffset    = letterPrefix + "offset"
	letterAttempts  = letterPrefix + "attempts"
	letterReason    = letterPrefix + "reason"
)

// redriver is the subscription of a dead-letter topic that remembers what was
// sent back.
const redriver = "redrive"

type dlqCommands struct {
	List    dlqListCmd    `cmd:"" help:"List the messages of a dead-letter topic: why they are there, and if sent back."`
	Show    dlqShowCmd    `cmd:"" help:"Show one dead letter."`
	Redrive dlqRedriveCmd `cmd:"" help:"Send dead letters back; which were is kept in a subscription named redrive."`
}

type dlqListCmd struct {
	clientFlags
	Topic string `arg:"" help:"The dead-letter topic."`
	Max   int    `help:"How many to list at most." default:"1000" least:"1"`
}

// Run lists dead letters, partition by partition.
func (c *dlqListCmd) Run(ctx context.Context, std *stdio) error {
	return c.with(ctx, std, func(ctx context.Context, cl *client.Client, p *printer) error {
		t, err := cl.GetTopic(ctx, &tapedeckv1.GetTopicRequest{Topic: c.Topic})
		if err != nil {
			return err
		}
		sent, err := c.sentBack(ctx, cl)
		if err != nil {
			return err
		}
		var rows [][]any
		for _, part := range t.GetPartitions() {
			left := c.Max - len(rows)
			err := eachLetter(ctx, cl, c.Topic, part.GetPartition(), part.GetLogStart(), left, func(m *client.Message) error {
				back := m.Offset < sent[m.Partition]
				rows = append(rows, []any{m.Partition, m.Offset, origin(m), m.Attributes[letterAttempts], yesNo(back),
					readable(m.Key), m.Attributes[letterReason]})
				if p.json {
					return p.value(letterLine{lineOf(m), back}, "")
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		if p.json {
			return nil
		}
		return p.table("PARTITION OFFSET FROM ATTEMPTS SENT-BACK KEY REASON", rows)
	})
}

// letterLine is a dead letter in JSON.
type letterLine struct {
	messageLine
	SentBack bool `json:"sentBack"`
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// sentBack says up to which offset redrive has sent each partition's letters back.
func (c *dlqListCmd) sentBack(ctx context.Context, cl *client.Client) (map[uint32]uint64, error) {
	ref := c.Topic + "/" + redriver
	s, err := cl.GetSubscription(ctx, &tapedeckv1.GetSubscriptionRequest{Subscription: ref})
	var e *client.Error
	if errors.As(err, &e) && e.Code == connect.CodeNotFound {
		return nil, nil // nobody has sent any
	} else if err != nil {
		return nil, fmt.Errorf("see what was sent back: %w", err)
	}
	sent := map[uint32]uint64{}
	for _, x := range s.GetPartitions() {
		if x.GetError() != nil {
			return nil, fmt.Errorf("see what %s has sent back of partition %d: %s; try again", ref, x.GetPartition(),
				x.GetError().GetMessage())
		}
		sent[x.GetPartition()] = x.GetCursor()
	}
	return sent, nil
}

// origin is topic/partition@offset.
func origin(m *client.Message) string {
	if m.Attributes[letterTopic] == "" {
		return "unknown"
	}
	return fmt.Sprintf("%s/%s@%s", m.Attributes[letterTopic], m.Attributes[letterPartition], m.Attributes[letterOffset])
}

// eachLetter reads a partition from an offset to its end, or as many as wanted.
func eachLetter(ctx context.Context, cl *client.Client, topic string, partition uint32, next uint64, left int,
	do func(*client.Message) error) error {
	for left > 0 {
		r, err := cl.Fetch(ctx, client.FetchRequest{Topic: topic, Partition: partition, Offset: next,
			MaxMessages: uint32(min(left, 1000))})
		if err != nil {
			return err
		}
		for _, m := range r.Messages[:min(left, len(r.Messages))] {
			if err := do(m); err != nil {
				return err
			}
		}
		left -= len(r.Messages)
		if next = r.Next; len(r.Messages) == 0 || next >= r.HighWatermark {
			return nil
		}
	}
	return nil
}

type dlqShowCmd struct {
	clientFlags
	Topic     string `arg:"" help:"The dead-letter topic."`
	Partition uint32 `arg:"" help:"Its partition."`
	Offset    uint64 `arg:"" help:"The message's offset there."`
}

// Run shows a dead letter.
func (c *dlqShowCmd) Run(ctx context.Context, std *stdio) error {
	return c.with(ctx, std, func(ctx context.Context, cl *client.Client, p *printer) error {
		found := false
		err := eachLetter(ctx, cl, c.Topic, c.Partition, c.Offset, 1, func(m *client.Message) error {
			found = m.Offset == c.Offset
			if p.json || !found {
				return p.message(m)
			}
			p.facts("from", origin(m), "attempts", m.Attributes[letterAttempts], "reason", m.Attributes[letterReason],
				"moved", m.AppendTime.Format(time.RFC3339), "key", readable(m.Key), "payload", readable(m.Payload))
			return nil
		})
		if err == nil && !found {
			err = fmt.Errorf("partition %d of %s has no message at offset %d", c.Partition, c.Topic, c.Offset)
		}
		return err
	})
}

type dlqRedriveCmd struct {
	clientFlags
	Topic string        `arg:"" help:"The dead-letter topic."`
	Max   int           `help:"End after so many; 0: all there are now."`
	Wait  time.Duration `help:"End when nothing came for so long." default:"5s" least:"1ms"`
}

// Run sends dead letters back, each at least once: what was sent is remembered
// by a subscription of the dead-letter topic, so that the next run goes on there.
func (c *dlqRedriveCmd) Run(ctx context.Context, std *stdio) error {
	return c.with(ctx, std, func(ctx context.Context, cl *client.Client, p *printer) error {
		read := subCmd{Ref: c.Topic + "/" + redriver, Max: c.Max, Wait: c.Wait}
		req, err := createRequest(read.Ref, "earliest")
		if err != nil {
			return err
		}
		var e *client.Error
		if _, err = cl.CreateSubscription(ctx, req); err != nil &&
			(!errors.As(err, &e) || e.Code != connect.CodeAlreadyExists) {
			return err
		}
		sent := 0
		producers := map[string]*client.Producer{}
		err = read.each(ctx, cl, std, func(m *client.Message) error {
			if err := c.sendBack(ctx, cl, producers, m); err != nil {
				return err
			}
			sent++
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s sent back, then: %w", count(sent, "message"), err)
		}
		return p.value(map[string]int{"redriven": sent}, "sent %s back", count(sent, "message"))
	})
}

// sendBack publishes a dead letter as it was.
func (c *dlqRedriveCmd) sendBack(ctx context.Context, cl *client.Client, producers map[string]*client.Producer,
	m *client.Message) error {
	topic := m.Attributes[letterTopic]
	if topic == "" {
		return fmt.Errorf("partition %d, offset %d of %s does not say where it came from: no subscription moved it here",
			m.Partition, m.Offset, c.Topic)
	}
	if producers[topic] == nil {
		p, err := cl.NewProducer(ctx, topic)
		if err != nil {
			return err
		}
		producers[topic] = p
	}
	back := &client.Message{Key: m.Key, Payload: m.Payload, Attributes: maps.Clone(m.Attributes), EventTime: m.EventTime}
	maps.DeleteFunc(back.Attributes, func(name, _ string) bool { return strings.HasPrefix(name, letterPrefix) })
	_, err := producers[topic].Publish(ctx, back)
	return err
}
