package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/api/tapedeck/v1/tapedeckv1connect"
	"github.com/tapedeck/tapedeck/client"
	"github.com/tapedeck/tapedeck/disk/journal"
)

// demoCmd shows the broker at work, and fails if anything is not as claimed.
type demoCmd struct {
	Verbose bool `help:"Show what the nodes log."`
}

const (
	demoTopic   = "orders"
	demoTimeout = 2 * time.Minute
)

// demoLines are published as they are: key, colon, text.
var demoLines = []string{
	"ann: 2 coffees", "bob: 1 tea", "cleo: 1 cake",
	"ann: 1 water", "bob: 2 cakes", "dan: 3 juices",
	"cleo: pays", "ann: pays", "bob: pays",
}

// Run starts a cluster of three on free ports in a temporary folder, walks
// through the steps and stops it.
func (c *demoCmd) Run(ctx context.Context, std *stdio) (err error) {
	tuneMemory()
	ctx, cancel := context.WithTimeout(ctx, demoTimeout)
	defer cancel()
	log := slog.New(slog.DiscardHandler)
	if c.Verbose {
		log = slog.New(slog.NewTextHandler(std.Err, nil))
	}
	addresses, err := consecutive("127.0.0.1:0", 3)
	if err != nil {
		return err
	}
	d := &demo{out: std.Out, published: map[string][]string{}}
	d.say("Starting three nodes in this process, with their data in a temporary folder.")
	if d.cluster, err = startCluster(addresses, clusterData{journal: journal.Own}, nil, log); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.cluster.stop(5*time.Second)) }()
	if err := d.cluster.waitReady(ctx); err != nil {
		return err
	}
	for _, n := range d.cluster.nodes {
		d.note("%s serves at %s", n.ID(), n.URL())
	}
	var urls []string
	for _, n := range d.cluster.nodes {
		urls = append(urls, n.URL())
	}
	cl, err := client.New(client.Config{Addresses: urls})
	if err != nil {
		return err
	}
	defer cl.Close()
	for _, step := range []func(context.Context) error{
		d.create, d.openProducer(cl), d.publishFirst, d.readTwice, d.publishMore, d.rewind, d.failover, d.finish,
	} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("the demonstration failed: %w", err)
		}
	}
	return nil
}

// demo is a demonstration under way.
type demo struct {
	out     io.Writer
	cluster *cluster
	pubsub  tapedeckv1connect.PubSubServiceClient
	admin   tapedeckv1connect.AdminServiceClient
	through *localNode // where pubsub and admin go
	// producer publishes. Unlike a plain publish, whose outcome nobody knows when the
	// leader dies under it, what it sends is sent again and stored once.
	producer *client.Producer

	published map[string][]string // by key, in order
	moment    time.Time           // between the first lines and the rest
	early     int                 // lines published before it
}

func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.out, "\n%s\n", fmt.Sprintf(format, args...))
}

func (d *demo) note(format string, args ...any) {
	fmt.Fprintf(d.out, "   %s\n", fmt.Sprintf(format, args...))
}

// use talks to the cluster through the given node from now on.
func (d *demo) use(n *localNode) {
	d.through = n
	node := connect.NewClient(connecthttp.NewTransport(http.DefaultClient, n.URL(), connecthttp.WithCompressors()))
	d.pubsub = tapedeckv1connect.NewPubSubServiceClient(node)
	d.admin = tapedeckv1connect.NewAdminServiceClient(node)
}

func (d *demo) create(ctx context.Context) error {
	d.use(d.cluster.nodes[0])
	d.say("Creating topic %s: 2 partitions with 3 replicas each; and two subscriptions on it.", demoTopic)
	if _, err := d.admin.CreateTopic(ctx, &tapedeckv1.CreateTopicRequest{
		Name: demoTopic, Partitions: 2, Replicas: 3,
	}); err != nil {
		return fmt.Errorf("create topic: %w", err)
	}
	for _, name := range []string{"kitchen", "till"} {
		if _, err := d.admin.CreateSubscription(ctx, &tapedeckv1.CreateSubscriptionRequest{
			Topic: demoTopic, Name: name,
		}); err != nil {
			return fmt.Errorf("create subscription %s: %w", name, err)
		}
	}
	t, err := d.admin.GetTopic(ctx, &tapedeckv1.GetTopicRequest{Topic: demoTopic})
	if err != nil {
		return fmt.Errorf("describe topic: %w", err)
	}
	for _, p := range t.GetPartitions() {
		d.note("partition %d: led by %s, replicas on %s",
			p.GetPartition(), p.GetLeader(), strings.Join(p.GetReplicas(), ", "))
	}
	d.note("a message is acknowledged when %d disks have it; %d lost machine loses none",
		t.GetDurability().GetCopiesAtAck(), t.GetDurability().GetLossesSurvived())
	return nil
}

func (d *demo) openProducer(cl *client.Client) func(context.Context) error {
	return func(ctx context.Context) (err error) {
		d.producer, err = cl.NewProducer(ctx, demoTopic)
		return err
	}
}

// publish sends lines one by one, so that each shows its place.
func (d *demo) publish(ctx context.Context, lines []string) error {
	for _, line := range lines {
		key, text, _ := strings.Cut(line, ": ")
		r, err := d.producer.Publish(ctx, &client.Message{Key: []byte(key), Payload: []byte(text)})
		if err != nil {
			return fmt.Errorf("publish %q: %w", line, err)
		}
		d.note("%-16s → partition %d, offset %d", line, r.Partition, r.Offset)
		d.published[key] = append(d.published[key], text)
	}
	return nil
}

func (d *demo) publishFirst(ctx context.Context) error {
	d.say("Publishing lines; what comes before the colon is the key, and keeps its order.")
	d.early = 6
	return d.publish(ctx, demoLines[:d.early])
}

// read pulls until count messages have come, acks them, and says what came.
func (d *demo) read(ctx context.Context, subscription string, count int) ([]*tapedeckv1.PulledMessage, error) {
	var got []*tapedeckv1.PulledMessage
	ref := demoTopic + "/" + subscription
	member := "demo-" + subscription
	for len(got) < count {
		res, err := d.pubsub.Pull(ctx, &tapedeckv1.PullRequest{
			Subscription: ref, Member: member, Wait: durationpb.New(5 * time.Second),
		})
		if err != nil {
			return nil, fmt.Errorf("pull from %s: %w", ref, err)
		}
		ack := &tapedeckv1.AckRequest{Subscription: ref, Member: member, Generation: res.GetGeneration()}
		next := map[uint32]uint64{}
		for _, m := range res.GetMessages() {
			d.note("%-8s got %-16s (partition %d, offset %d)", subscription,
				fmt.Sprintf("%s: %s", m.GetKey(), m.GetPayload()), m.GetPartition(), m.GetOffset())
			got = append(got, m)
			next[m.GetPartition()] = m.GetOffset() + 1
		}
		if len(next) == 0 {
			if ctx.Err() != nil {
				return nil, fmt.Errorf("%s: %d of %d messages came: %w", ref, len(got), count, ctx.Err())
			}
			continue
		}
		for partition, offset := range next {
			ack.UpTo = append(ack.UpTo, &tapedeckv1.AckUpTo{Partition: partition, NextOffset: offset})
		}
		acked, err := d.pubsub.Ack(ctx, ack)
		if err != nil {
			return nil, fmt.Errorf("ack to %s: %w", ref, err)
		}
		for _, r := range acked.GetResults() {
			if r.GetError() != nil {
				return nil, fmt.Errorf("ack to %s, partition %d: %s", ref, r.GetPartition(), r.GetError().GetMessage())
			}
		}
	}
	if len(got) != count {
		return nil, fmt.Errorf("%s: %d messages came where %d were expected", ref, len(got), count)
	}
	return got, nil
}

// lagIsZero checks that everything is acked.
func (d *demo) lagIsZero(ctx context.Context, subscription string) error {
	s, err := d.admin.GetSubscription(ctx, &tapedeckv1.GetSubscriptionRequest{
		Subscription: demoTopic + "/" + subscription,
	})
	if err != nil {
		return fmt.Errorf("describe subscription %s: %w", subscription, err)
	}
	for _, p := range s.GetPartitions() {
		if p.GetError() != nil || p.GetLag() != 0 {
			return fmt.Errorf("subscription %s, partition %d: lag is %d, not 0 (%v)",
				subscription, p.GetPartition(), p.GetLag(), p.GetError().GetMessage())
		}
	}
	d.note("%-8s has acked everything: lag 0", subscription)
	return nil
}

// ordered checks that each key's messages came in the order published, from
// its skip-th on.
func (d *demo) ordered(got []*tapedeckv1.PulledMessage, skip map[string]int) error {
	at := map[string]int{}
	for key, n := range skip {
		at[key] = n
	}
	for _, m := range got {
		key := string(m.GetKey())
		if at[key] >= len(d.published[key]) || d.published[key][at[key]] != string(m.GetPayload()) {
			return fmt.Errorf("key %s: %q came where the order of publishing has another", key, m.GetPayload())
		}
		at[key]++
	}
	return nil
}

func (d *demo) readTwice(ctx context.Context) error {
	d.say("Pulling and acking in both subscriptions: each gets every message, in order per key.")
	for _, name := range []string{"kitchen", "till"} {
		got, err := d.read(ctx, name, d.early)
		if err != nil {
			return err
		}
		if err := d.ordered(got, nil); err != nil {
			return err
		}
		if err := d.lagIsZero(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) publishMore(ctx context.Context) error {
	var last time.Time
	for partition := range uint32(2) {
		res, err := d.pubsub.Fetch(ctx, &tapedeckv1.FetchRequest{Topic: demoTopic, Partition: partition})
		if err != nil {
			return fmt.Errorf("fetch partition %d: %w", partition, err)
		}
		for _, m := range res.GetMessages() {
			if at := m.GetAppendTime().AsTime(); at.After(last) {
				last = at
			}
		}
	}
	// Any moment after the last stamp will do, and the clock is past it by now.
	d.moment = last.Add(time.Nanosecond)
	d.say("Noting the moment %s and publishing more.", d.moment.Format("15:04:05.000"))
	if err := d.publish(ctx, demoLines[d.early:]); err != nil {
		return err
	}
	if _, err := d.read(ctx, "kitchen", len(demoLines)-d.early); err != nil {
		return err
	}
	return d.lagIsZero(ctx, "kitchen")
}

func (d *demo) rewind(ctx context.Context) error {
	d.say("Rewinding kitchen to that moment and reading again; till is not disturbed.")
	if _, err := d.pubsub.Seek(ctx, &tapedeckv1.SeekRequest{
		Subscription: demoTopic + "/kitchen", Target: &tapedeckv1.SeekRequest_Time{Time: timestamppb.New(d.moment)},
	}); err != nil {
		return fmt.Errorf("seek: %w", err)
	}
	got, err := d.read(ctx, "kitchen", len(demoLines)-d.early)
	if err != nil {
		return err
	}
	early := map[string]int{}
	for _, line := range demoLines[:d.early] {
		key, _, _ := strings.Cut(line, ": ")
		early[key]++
	}
	if err := d.ordered(got, early); err != nil {
		return err
	}
	if err := d.lagIsZero(ctx, "kitchen"); err != nil {
		return err
	}
	d.say("Rewinding kitchen to the very beginning.")
	if _, err := d.pubsub.Seek(ctx, &tapedeckv1.SeekRequest{
		Subscription: demoTopic + "/kitchen", Target: &tapedeckv1.SeekRequest_Earliest{},
	}); err != nil {
		return fmt.Errorf("seek: %w", err)
	}
	if got, err = d.read(ctx, "kitchen", len(demoLines)); err != nil {
		return err
	}
	return d.ordered(got, nil)
}

func (d *demo) failover(ctx context.Context) error {
	t, err := d.admin.GetTopic(ctx, &tapedeckv1.GetTopicRequest{Topic: demoTopic})
	if err != nil {
		return fmt.Errorf("describe topic: %w", err)
	}
	leader := t.GetPartitions()[0].GetLeader()
	d.say("Killing %s, which leads partition 0, and going on through another node.", leader)
	for _, n := range d.cluster.nodes {
		if string(n.ID()) == leader {
			d.cluster.kill(n)
		}
	}
	for _, n := range d.cluster.nodes {
		if !d.cluster.down[n] {
			d.use(n)
		}
	}
	began := time.Now()
	more := []string{"ann: 1 espresso", "bob: 1 scone", "dan: pays", "cleo: 2 teas"}
	if err := d.publish(ctx, more); err != nil {
		return err
	}
	d.note("all published after %d ms", time.Since(began).Milliseconds())
	d.early = len(demoLines) + len(more) // all there is now
	return nil
}

func (d *demo) finish(ctx context.Context) error {
	d.say("Reading on from where each subscription had got to.")
	if _, err := d.read(ctx, "kitchen", d.early-len(demoLines)); err != nil {
		return err
	}
	if _, err := d.read(ctx, "till", d.early-6); err != nil {
		return err
	}
	for _, name := range []string{"kitchen", "till"} {
		if err := d.lagIsZero(ctx, name); err != nil {
			return err
		}
	}
	d.say("Nothing was lost, and nothing came twice without being asked for.")
	return nil
}
