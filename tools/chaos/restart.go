package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/client"
)

// devRestart stops a cluster in one process by SIGTERM and by kill -9 under
// load, in turn, and starts it again on the same folder.
func (s *stage) devRestart(ctx context.Context) error {
	c, err := s.cluster(ctx, s.nodes)
	if err != nil {
		return err
	}
	// A dev cluster takes consecutive ports: the nodes are renumbered to them.
	host, first := "127.0.0.1", 0
	if _, err := fmt.Sscanf(c.nodes[0].address, host+":%d", &first); err != nil {
		return err
	}
	for i, x := range c.nodes {
		x.address = fmt.Sprintf("%s:%d", host, first+i)
		if x.client, err = client.New(client.Config{Addresses: []string{x.address}, NoDirect: true}); err != nil {
			return err
		}
	}
	dev := func() (*process, error) {
		p, err := startProcess(filepath.Join(s.dir, "dev.log"), s.nodes, nil, s.bin, "dev", "--nodes", fmt.Sprint(s.nodes),
			"--data", filepath.Join(s.dir, "dev"), "--listen", c.nodes[0].address)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, readyPatience)
		defer cancel()
		if err := p.awaitReady(ctx); err != nil {
			p.kill()
			return nil, fmt.Errorf("dev: %w", err)
		}
		return p, nil
	}
	p, err := dev()
	if err != nil {
		return err
	}
	s.undo = append(s.undo, func() { p.kill() })
	l, err := s.load(ctx, c, s.steady(s.nodes, 2))
	if err != nil {
		return err
	}
	n := s.nemesis(l, c)
	for round := 0; round < 6 && ctx.Err() == nil; round++ {
		if err := l.awaitProgress(ctx, time.Minute); err != nil {
			return err
		}
		sleep(ctx, 2*time.Second)
		before := cursors(ctx, c)
		if round%2 == 0 {
			n.counts["restart"]++
			if err := p.stop(); err != nil {
				return fmt.Errorf("dev %w", err)
			}
		} else {
			n.counts["kill all"]++
			p.kill()
		}
		began := time.Now()
		if p, err = dev(); err != nil {
			return err
		}
		s.say("%s and started again: ready after %v; cursors before %v, after %v",
			[]string{"SIGTERM", "kill -9"}[round%2], time.Since(began).Round(time.Millisecond), before, cursors(ctx, c))
	}
	if err := l.awaitProgress(ctx, time.Minute); err != nil {
		return err
	}
	return errors.Join(s.end(ctx, l, n), p.stop())
}

// cursors sums up where a subscription is, for people; the history's checkers
// judge it.
func cursors(ctx context.Context, c *cluster) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	s, err := c.nodes[0].client.GetSubscription(ctx, &tapedeckv1.GetSubscriptionRequest{Subscription: subscriptions[0]})
	if err != nil {
		return err.Error()
	}
	var all []string
	for _, p := range s.GetPartitions() {
		all = append(all, fmt.Sprint(p.GetCursor()))
	}
	return strings.Join(all, " ")
}

// reopenBound is how long a node may take to open a partition of 5 GB.
const reopenBound = 3 * time.Second

// bigReopen fills one partition on one node and measures how long the node
// takes until it can serve again, after a stop and after a crash.
func (s *stage) bigReopen(ctx context.Context) error {
	c, err := s.cluster(ctx, 1)
	if err != nil {
		return err
	}
	if err := c.start(ctx); err != nil {
		return err
	}
	x := c.nodes[0]
	count, err := s.fillPartition(ctx, x)
	if err != nil {
		return err
	}
	for _, how := range []string{"SIGTERM", "kill -9", "kill -9 at once again"} {
		if how == "SIGTERM" {
			if err := x.stop(); err != nil {
				return err
			}
		} else {
			x.kill()
		}
		began := time.Now()
		if err := x.start(ctx); err != nil {
			return err
		}
		ready := time.Since(began)
		for _, offset := range []uint64{count - 1, 0, count / 2} {
			if err := fetchOne(ctx, x, offset); err != nil {
				return err
			}
		}
		s.say("%s, %s on disk: ready after %v, first, last and middle message read after %v", how,
			size(folderBytes(x.data)), ready.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
		if ready > reopenBound {
			return fmt.Errorf("reopening took %v; the bound is %v", ready, reopenBound)
		}
	}
	fmt.Println("ok")
	return nil
}

// fillPartition publishes the bytes asked for and returns how many messages they are.
func (s *stage) fillPartition(ctx context.Context, x *node) (uint64, error) {
	if _, err := x.client.CreateTopic(ctx, &tapedeckv1.CreateTopicRequest{Name: topicName, Replicas: 1}); err != nil {
		return 0, err
	}
	p, err := x.client.NewProducer(ctx, topicName)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	var failed atomic.Pointer[error]
	count := uint64(0)
	for sent := int64(0); sent < s.bytes && failed.Load() == nil; count++ {
		payload := payloadOf(s.rng, 0, count, 60_000)
		sent += int64(len(payload))
		err := p.PublishAsync(ctx, &client.Message{Payload: payload}, func(_ client.Result, err error) {
			if err != nil {
				failed.Store(&err)
			}
		})
		if err != nil {
			return 0, err
		}
	}
	if err := p.Close(ctx); err != nil {
		return 0, err
	}
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	s.say("published %d messages, %s, in %v", count, size(s.bytes), time.Since(began).Round(time.Second))
	return count, nil
}

func fetchOne(ctx context.Context, x *node, offset uint64) error {
	r, err := x.client.Fetch(ctx, client.FetchRequest{Topic: topicName, Offset: offset, MaxMessages: 1})
	if err != nil {
		return fmt.Errorf("fetch offset %d: %w", offset, err)
	}
	if len(r.Messages) == 0 || r.Messages[0].Offset != offset {
		return fmt.Errorf("a fetch of offset %d brought %d messages", offset, len(r.Messages))
	}
	return nil
}
