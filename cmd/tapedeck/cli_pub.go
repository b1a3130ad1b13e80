package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/tapedeck/tapedeck/client"
	"github.com/tapedeck/tapedeck/core/model"
)

type pubCmd struct {
	clientFlags
	Topic        string            `arg:"" help:"The topic to publish to."`
	KeySeparator string            `help:"What ends the key at the start of a line, such as :" placeholder:"TEXT"`
	Key          string            `help:"One key for all lines."`
	Partition    *uint32           `help:"Publish to this partition, whatever the key." placeholder:"N"`
	Attribute    map[string]string `help:"Attributes of every message." placeholder:"NAME=VALUE"`
	Compression  string            `help:"How batches are packed: none, zstd or s2." enum:"none,zstd,s2" default:"none"`
}

// published is a result in JSON.
type published struct {
	Partition uint32 `json:"partition"`
	Offset    uint64 `json:"offset"`
	Duplicate bool   `json:"duplicate,omitempty"`
}

// Run publishes each line and waits for all to be stored.
func (c *pubCmd) Run(ctx context.Context, std *stdio) error {
	return c.with(ctx, std, func(ctx context.Context, cl *client.Client, p *printer) error {
		if err := c.partitionIsThere(ctx, cl); err != nil {
			return err
		}
		packed := map[string]client.Compression{"none": client.NoCompression, "zstd": client.Zstd, "s2": client.S2}
		delivery := max(c.Timeout, model.MaxLeaderWait)
		ready, cancel := context.WithTimeout(ctx, c.Timeout)
		defer cancel()
		producer, err := cl.NewProducer(ready, c.Topic, client.WithCompression(packed[c.Compression]),
			client.WithDeliveryTimeout(delivery))
		if err != nil {
			return err
		}
		t := &tally{p: p}
		err = interruptible(ctx, func() error { return c.publishLines(ctx, std.In, producer, t) })
		// What was read is stored, even if no more is to be. What cannot be stored says why
		// after the delivery timeout, so that is waited for.
		rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), delivery+time.Second)
		defer cancel()
		err = errors.Join(err, producer.Close(rest), t.first())
		if err != nil {
			return fmt.Errorf("%s published, then: %w", count(t.stored(), "message"), err)
		}
		if p.json {
			return nil
		}
		return p.value(nil, "published %s to %s", count(t.stored(), "message"), c.Topic)
	})
}

// partitionIsThere checks the partition asked for, if one is, before anything is read.
func (c *pubCmd) partitionIsThere(ctx context.Context, cl *client.Client) error {
	if c.Partition == nil {
		return nil
	}
	t, err := topicOf(ctx, cl, c.Topic)
	if err == nil && t != nil && *c.Partition >= t.GetPartitions() {
		err = fmt.Errorf("--partition: is %d; topic %q has %d, counted from 0", *c.Partition, c.Topic, t.GetPartitions())
	}
	return err
}

// tally counts what was stored and keeps the first error.
type tally struct {
	p     *printer
	mu    sync.Mutex
	count int
	err   error
}

func (t *tally) note(r client.Result, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.count++
		if t.p.json {
			err = t.p.value(published{r.Partition, r.Offset, r.Duplicate}, "")
		}
	}
	if t.err == nil {
		t.err = err
	}
}

// first is the first error.
func (t *tally) first() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

func (t *tally) stored() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count
}

func (c *pubCmd) publishLines(ctx context.Context, in io.Reader, producer *client.Producer, t *tally) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 64<<10), model.MaxMessageBytes+model.MaxKeyBytes)
	for n := 1; lines.Scan() && t.first() == nil; n++ {
		m, err := c.message(bytes.Clone(lines.Bytes()), n)
		if err != nil {
			return err
		}
		if c.Partition != nil {
			err = producer.PublishTo(ctx, *c.Partition, m, t.note)
		} else {
			err = producer.PublishAsync(ctx, m, t.note)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("a line is longer than a message may be (%d bytes)", model.MaxMessageBytes)
	}
	return lines.Err()
}

func (c *pubCmd) message(line []byte, n int) (*client.Message, error) {
	m := &client.Message{Payload: line, Attributes: c.Attribute}
	if c.Key != "" {
		m.Key = []byte(c.Key)
	}
	if c.KeySeparator == "" {
		return m, nil
	}
	key, payload, ok := bytes.Cut(line, []byte(c.KeySeparator))
	if !ok {
		return nil, fmt.Errorf("line %d has no %q: with --key-separator each line is KEY%sVALUE",
			n, c.KeySeparator, c.KeySeparator)
	}
	m.Key, m.Payload = key, payload
	return m, nil
}
