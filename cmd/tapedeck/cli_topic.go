package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/client"
)

type topicCommands struct {
	Create topicCreateCmd `cmd:"" help:"Create a topic. The same again succeeds."`
	Get    topicGetCmd    `cmd:"" help:"Describe a topic, its partitions and what it survives."`
	List   topicListCmd   `cmd:"" help:"List topics."`
	Update topicUpdateCmd `cmd:"" help:"Change a topic's settings, or add partitions."`
	Delete topicDeleteCmd `cmd:"" help:"Delete a topic and its messages for good."`
}

type topicCreateCmd struct {
	clientFlags
	Name            string        `arg:"" help:"1 to 128 of a-z 0-9 . _ -; one that begins with - goes behind --."`
	Partitions      uint32        `help:"Number of partitions." default:"1" least:"1"`
	Replicas        uint32        `help:"Copies of each partition: 1, 3 or 5." default:"3" least:"1"`
	Retention       time.Duration `help:"How long messages are kept, such as 12h or 30d; 0: 7 days."`
	RetentionBytes  byteSize      `help:"Bytes kept per partition, such as 10GiB; 0: unbounded." placeholder:"SIZE"`
	MaxMessageBytes messageSize   `help:"${largest_help}" placeholder:"SIZE"`
	Owner           string        `help:"Who to talk to about this topic."`
}

// Run creates the topic.
func (c *topicCreateCmd) Run(ctx context.Context, std *stdio) error {
	return c.with(ctx, std, func(ctx context.Context, cl *client.Client, p *printer) error {
		resp, err := cl.CreateTopic(ctx, &tapedeckv1.CreateTopicRequest{
			Name: c.Name, Partitions: c.Partitions, Replicas: c.Replicas, RetentionTime: optional(c.Retention),
			RetentionBytes: uint64(c.RetentionBytes), MaxMessageBytes: uint32(c.MaxMessageBytes), Owner: c.Owner,
		})
		if err != nil {
			return err
		}
		return p.proto(resp, func() error {
			return p.value(nil, "topic %s: %s, %s each", c.Name,
				count(c.Partitions, "partition"), count(c.Replicas, "copy"))
		})
	})
}

// optional leaves a zero duration out of a request.
func optional(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

type topicGetCmd struct {
	clientFlags
	Name string `arg:"" help:"The topic."`
}

// Run describes the topic.
func (c *topicGetCmd) Run(ctx context.Context, std *stdio) error {
	return c.with(ctx, std, func(ctx context.Context, cl *client.Client, p *printer) error {
		t, err := cl.GetTopic(ctx, &tapedeckv1.GetTopicRequest{Topic: c.Name})
		if err != nil {
			return err
		}
		return p.proto(t, func() error { return describeTopic(p, t) })
	})
}

func describeTopic(p *printer, t *tapedeckv1.GetTopicResponse) error {
	kept := ago(t.GetRetentionTime())
	if n := t.GetRetentionBytes(); n > 0 {
		kept += fmt.Sprintf(", at most %s per partition", size(n))
	}
	d := t.GetDurability()
	durability := fmt.Sprintf("%s at ack, survives the loss of %d, available without %d",
		count(d.GetCopiesAtAck(), "copy"), d.GetLossesSurvived(), d.GetLossesWhileAvailable())
	if d.GetAtRisk() {
		durability += "; NOT RIGHT NOW: replicas are missing"
	}
	p.facts("topic", t.GetName(), "owner", t.GetOwner(), "created", moment(t.GetCreateTime()), "kept", kept,
		"copies", t.GetReplicas(), "durability", durability)
	rows := make([][]any, 0, len(t.GetPartitions()))
	for _, x := range t.GetPartitions() {
		state := "ok"
		switch {
		case x.GetError() != nil:
			state = x.GetError().GetMessage()
		case x.GetAtRisk():
			state = "at risk"
		}
		rows = append(rows, []any{x.GetPartition(), x.GetLeader(), strings.Join(x.GetReplicas(), ","),
			x.GetLogStart(), x.GetHighWatermark(), size(x.GetBytes()), state})
	}
	return p.table("PARTITION LEADER REPLICAS START END SIZE STATE", rows)
}

type topicListCmd struct{ clientFlags }

// Run lists the topics.
func (c *topicListCmd) Run(ctx context.Context, std *stdio) error {
	return c.with(ctx, std, func(ctx context.Context, cl *client.Client, p *printer) error {
		topics, err := cl.ListTopics(ctx)
		if err != nil {
			return err
		}
		return p.proto(&tapedeckv1.ListTopicsResponse{Topics: topics}, func() error {
			rows := make([][]any, 0, len(topics))
			for _, t := range topics {
				rows = append(rows, []any{t.GetName(), t.GetPartitions(), t.GetReplicas(), ago(t.GetRetentionTime()),
					moment(t.GetCreateTime()), t.GetOwner()})
			}
			return p.table("TOPIC PARTITIONS COPIES KEPT CREATED OWNER", rows)
		})
	})
}

type topicUpdateCmd struct {
	clientFlags
	Name            string         `arg:"" help:"The topic."`
	Partitions      *uint32        `help:"New number of partitions; it may only grow, and keys move." placeholder:"N"`
	Retention       *time.Duration `help:"How long messages are kept."`
	RetentionBytes  *byteSize      `help:"Bytes kept per partition, such as 10GiB; 0: unbounded." placeholder:"SIZE"`
	MaxMessageBytes *messageSize   `help:"${largest_help}" placeholder:"SIZE"`
}

// Run changes what flags were given for.
func (c *topicUpdateCmd) Run(ctx context.Context, std *stdio) error {
	return c.with(ctx, std, func(ctx context.Context, cl *client.Client, p *printer) error {
		req := &tapedeckv1.UpdateTopicRequest{
			Topic: c.Name, Partitions: c.Partitions, RetentionBytes: (*uint64)(c.RetentionBytes),
			MaxMessageBytes: (*uint32)(c.MaxMessageBytes),
		}
		if c.Retention != nil {
			req.RetentionTime = durationpb.New(*c.Retention)
		}
		if c.Partitions == nil && c.Retention == nil && c.RetentionBytes == nil && c.MaxMessageBytes == nil {
			return errors.New("nothing changed: give --partitions, --retention, --retention-bytes or --max-message-bytes")
		}
		// What it was is for the text alone: the change is made in any case.
		before, err := topicOf(ctx, cl, c.Name)
		if err != nil {
			return err
		}
		resp, err := cl.UpdateTopic(ctx, req)
		if err != nil {
			return err
		}
		return p.proto(resp, func() error {
			if c.same(before) {
				return p.value(nil, "topic %s: nothing changed, it was so already", c.Name)
			}
			return p.value(nil, "topic %s changed", c.Name)
		})
	})
}

// topicOf is a topic's definition; nil if there is none.
func topicOf(ctx context.Context, cl *client.Client, name string) (*tapedeckv1.Topic, error) {
	all, err := cl.ListTopics(ctx)
	i := slices.IndexFunc(all, func(t *tapedeckv1.Topic) bool { return t.GetName() == name })
	if i < 0 {
		return nil, err
	}
	return all[i], nil
}

// same says that a topic has all that is asked for.
func (c *topicUpdateCmd) same(t *tapedeckv1.Topic) bool {
	largest := t.GetMaxMessageBytes()
	if c.MaxMessageBytes != nil && *c.MaxMessageBytes == 0 {
		largest = 0 // the default, whatever that is
	}
	return t != nil && holds(c.Partitions, t.GetPartitions()) &&
		holds(c.Retention, t.GetRetentionTime().AsDuration()) &&
		holds(c.RetentionBytes, byteSize(t.GetRetentionBytes())) &&
		holds(c.MaxMessageBytes, messageSize(largest))
}

// holds says that a flag was not given, or asks for what is so.
func holds[T comparable](flag *T, is T) bool { return flag == nil || *flag == is }

type topicDeleteCmd struct {
	clientFlags
	Name  string `arg:"" help:"The topic."`
	Force bool   `help:"Delete its subscriptions, too."`
}

// Run deletes the topic.
func (c *topicDeleteCmd) Run(ctx context.Context, std *stdio) error {
	return c.with(ctx, std, func(ctx context.Context, cl *client.Client, p *printer) error {
		resp, err := cl.DeleteTopic(ctx, &tapedeckv1.DeleteTopicRequest{Topic: c.Name, Force: c.Force})
		if err != nil {
			return err
		}
		return p.proto(resp, func() error { return p.value(nil, "topic %s deleted", c.Name) })
	})
}
