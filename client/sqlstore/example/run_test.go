package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/client"
	"github.com/tapedeck/tapedeck/client/sqlstore"
)

// bench is a node with a topic and a subscription, and a database.
type bench struct {
	t        *testing.T
	ctx      context.Context
	c        *client.Client
	db       *sql.DB
	store    *sqlstore.Store
	producer *client.Producer
	address  string
	skipped  [][2]uint64
}

func newBench(t *testing.T, partitions uint32, subscription *tapedeckv1.CreateSubscriptionRequest) *bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	dir := t.TempDir()
	n, err := startNode(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.stop)
	b := &bench{t: t, ctx: ctx, address: n.address}
	if b.c, err = client.New(client.Config{Addresses: []string{n.address}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.c.Close)
	if _, err := b.c.CreateTopic(ctx, &tapedeckv1.CreateTopicRequest{Name: "orders", Partitions: partitions,
		Replicas: 1}); err != nil {
		t.Fatal(err)
	}
	subscription.Topic, subscription.Name = "orders", "books"
	if _, err := b.c.CreateSubscription(ctx, subscription); err != nil {
		t.Fatal(err)
	}
	if b.db, err = openBooks(ctx, filepath.Join(dir, "books.db")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.db.Close() })
	if _, err := b.db.Exec(schema); err != nil {
		t.Fatal(err)
	}
	if b.store, err = sqlstore.Open(ctx, b.c, b.db, sqlstore.Config{Subscription: "orders/books",
		Skipped: func(_ uint32, from, to uint64) { b.skipped = append(b.skipped, [2]uint64{from, to}) },
	}); err != nil {
		t.Fatal(err)
	}
	if b.producer, err = b.c.NewProducer(ctx, "orders"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.producer.Close(ctx) })
	return b
}

// publish stores messages in a partition; the attribute "even" tells them apart.
func (b *bench) publish(partition uint32, count int) {
	b.t.Helper()
	for i := range count {
		err := b.producer.PublishTo(b.ctx, partition, &client.Message{
			Attributes: map[string]string{"even": fmt.Sprint(i%2 == 0)}, Payload: []byte("x"),
		}, func(_ client.Result, err error) {
			if err != nil {
				b.t.Error(err)
			}
		})
		if err != nil {
			b.t.Fatal(err)
		}
	}
	if err := b.producer.Flush(b.ctx); err != nil {
		b.t.Fatal(err)
	}
}

// upTo applies what comes until the message at the offset is there, which it leaves.
func (b *bench) upTo(c *client.Client, offset uint64) error {
	return b.store.Run(b.ctx, c, func(ctx context.Context, tx *sql.Tx, m *client.Message) error {
		if m.Offset == offset {
			return errOutage
		}
		return effect("a")(ctx, tx, m)
	})
}

// exec runs statements on the database.
func (b *bench) exec(statements ...string) {
	b.t.Helper()
	for _, text := range statements {
		if _, err := b.db.Exec(text); err != nil {
			b.t.Fatalf("%s: %v", text, err)
		}
	}
}

// effects lists the offsets of a partition in the order of their effects.
func (b *bench) effects(partition int) (seqs []int) {
	b.t.Helper()
	rows, err := b.db.Query("SELECT seq FROM effect WHERE part = ? ORDER BY rowid", partition)
	if err != nil {
		b.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var seq int
		if err := rows.Scan(&seq); err != nil {
			b.t.Fatal(err)
		}
		seqs = append(seqs, seq)
	}
	return seqs
}

// numbers lists from, from+step and so on below to.
func numbers(from, to, step int) (out []int) {
	for n := from; n < to; n += step {
		out = append(out, n)
	}
	return out
}

func (b *bench) want(partition int, want []int) {
	b.t.Helper()
	if got := b.effects(partition); fmt.Sprint(got) != fmt.Sprint(want) {
		b.t.Fatalf("effects of partition %d: %v, want %v", partition, got, want)
	}
}

// TestMembersThatFail: two members whose handlers fail now and then, each with both
// partitions at one time or another. The last message of each partition is a mark.
func TestMembersThatFail(t *testing.T) {
	const count = 120
	b := newBench(t, 2, &tapedeckv1.CreateSubscriptionRequest{})
	b.publish(0, count+1)
	b.publish(1, count+1)
	ctx, stop := context.WithCancel(b.ctx)
	defer stop()
	var mu sync.Mutex
	calls, outages, ended := 0, 0, map[uint32]bool{}
	handler := func(ctx context.Context, tx *sql.Tx, m *client.Message) error {
		mu.Lock()
		calls++
		fail := calls%40 == 0
		if fail {
			outages++
		}
		if m.Offset == count { // all before it is committed
			if ended[m.Partition] = true; len(ended) == 2 {
				stop()
			}
			mu.Unlock()
			return nil
		}
		mu.Unlock()
		if err := effect("a")(ctx, tx, m); err != nil {
			return err
		}
		if fail {
			return errOutage
		}
		return nil
	}
	var members sync.WaitGroup
	for range 2 {
		members.Go(func() {
			for ctx.Err() == nil {
				err := b.store.Run(ctx, b.c, handler, client.WithConcurrency(2), client.WithBuffer(20))
				if err != nil && !errors.Is(err, errOutage) {
					t.Error(err)
					stop()
				}
			}
		})
	}
	members.Wait()
	if outages < 4 {
		t.Fatalf("only %d outages", outages)
	}
	b.want(0, numbers(0, count, 1))
	b.want(1, numbers(0, count, 1))
}

// TestTheRowIsTheTruth: a seek back changes nothing, and what a restored database
// does not know is fetched, for the broker takes it for done.
func TestTheRowIsTheTruth(t *testing.T) {
	b := newBench(t, 1, &tapedeckv1.CreateSubscriptionRequest{})
	b.publish(0, 31)
	if err := b.upTo(b.c, 30); !errors.Is(err, errOutage) {
		t.Fatal(err)
	}
	b.want(0, numbers(0, 30, 1))
	if _, err := b.c.Seek(b.ctx, &tapedeckv1.SeekRequest{Subscription: "orders/books",
		Target: &tapedeckv1.SeekRequest_Earliest{}}); err != nil {
		t.Fatal(err)
	}
	if err := b.upTo(b.c, 30); !errors.Is(err, errOutage) {
		t.Fatal(err)
	}
	b.want(0, numbers(0, 30, 1))
	b.exec("DELETE FROM effect WHERE seq >= 4", "UPDATE tapedeck_cursor SET next_offset = 4")
	if err := b.upTo(b.c, 30); !errors.Is(err, errOutage) {
		t.Fatal(err)
	}
	b.want(0, numbers(0, 30, 1))
	// To replay: take the effects back and forget the rows, together, and seek.
	tx, err := b.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	_, err = tx.Exec("DELETE FROM effect")
	if err := errors.Join(err, b.store.Forget(b.ctx, tx), tx.Commit()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.c.Seek(b.ctx, &tapedeckv1.SeekRequest{Subscription: "orders/books",
		Target: &tapedeckv1.SeekRequest_Earliest{}}); err != nil {
		t.Fatal(err)
	}
	if err := b.upTo(b.c, 30); !errors.Is(err, errOutage) {
		t.Fatal(err)
	}
	b.want(0, numbers(0, 30, 1))
}

// trimmed refuses fetches below offset 8, as a node does whose retention took what
// was there; the form is that of the broker's errors.
type trimmed struct {
	t       *testing.T
	refused atomic.Int32
}

func (r *trimmed) RoundTrip(q *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(q.URL.Path, "/Fetch") {
		return http.DefaultTransport.RoundTrip(q)
	}
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return nil, err
	}
	var asked tapedeckv1.FetchRequest
	if err := proto.Unmarshal(body, &asked); err != nil {
		r.t.Errorf("a fetch in another form: %v", err)
	}
	if asked.GetOffset() >= 8 {
		q.Body = io.NopCloser(bytes.NewReader(body))
		return http.DefaultTransport.RoundTrip(q)
	}
	r.refused.Add(1)
	detail, err := proto.Marshal(&errdetails.ErrorInfo{Reason: client.ReasonOffsetTooOld, Domain: "tapedeck",
		Metadata: map[string]string{"start": "8", "end": "31"}})
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf(`{"code":"out_of_range","message":"gone","details":[{"type":"google.rpc.ErrorInfo","value":%q}]}`,
		base64.RawStdEncoding.EncodeToString(detail))
	return &http.Response{StatusCode: http.StatusBadRequest, Status: "400 Bad Request", Request: q,
		Header: http.Header{"Content-Type": {"application/json"}}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text))}, nil
}

// TestWhatRetentionTookIsTold: a database from a backup so old that a part of what
// it misses is gone hears which part, and gets the rest.
func TestWhatRetentionTookIsTold(t *testing.T) {
	b := newBench(t, 1, &tapedeckv1.CreateSubscriptionRequest{})
	b.publish(0, 31)
	if err := b.upTo(b.c, 30); !errors.Is(err, errOutage) {
		t.Fatal(err)
	}
	b.exec("DELETE FROM effect WHERE seq >= 4", "UPDATE tapedeck_cursor SET next_offset = 4")
	trim := &trimmed{t: t}
	c, err := client.New(client.Config{Addresses: []string{b.address}, HTTP: &http.Client{Transport: trim}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := b.upTo(c, 30); !errors.Is(err, errOutage) {
		t.Fatal(err)
	}
	b.want(0, append(numbers(0, 4, 1), numbers(8, 30, 1)...))
	if fmt.Sprint(b.skipped) != "[[4 8]]" || trim.refused.Load() == 0 {
		t.Fatalf("told of %v, refused %d times", b.skipped, trim.refused.Load())
	}
}

// TestAFilterIsFollowed: what the broker leaves out on purpose is not fetched.
func TestAFilterIsFollowed(t *testing.T) {
	b := newBench(t, 1, &tapedeckv1.CreateSubscriptionRequest{Filter: `attributes.even == "true"`})
	b.publish(0, 41)
	if err := b.upTo(b.c, 40); !errors.Is(err, errOutage) {
		t.Fatal(err)
	}
	b.want(0, numbers(0, 40, 2))
}

// TestFencedMembersJoinAgain: joining raises the generation. When that does not
// help, Run says so and has acked nothing.
func TestFencedMembersJoinAgain(t *testing.T) {
	b := newBench(t, 1, &tapedeckv1.CreateSubscriptionRequest{})
	b.publish(0, 11)
	if err := b.upTo(b.c, 5); !errors.Is(err, errOutage) {
		t.Fatal(err)
	}
	b.exec("UPDATE tapedeck_cursor SET generation = generation + 2")
	if err := b.upTo(b.c, 10); !errors.Is(err, errOutage) {
		t.Fatal(err)
	}
	b.want(0, numbers(0, 10, 1))
	b.exec("UPDATE tapedeck_cursor SET generation = 1000")
	if err := b.upTo(b.c, 99); !errors.Is(err, sqlstore.ErrFenced) {
		t.Fatal(err)
	}
	r, err := b.c.GetSubscription(b.ctx, &tapedeckv1.GetSubscriptionRequest{Subscription: "orders/books"})
	if err != nil || r.GetPartitions()[0].GetCursor() != 10 {
		t.Fatalf("%v: %v", r.GetPartitions(), err)
	}
}

// TestASubscriptionMadeAgain is noticed by a store that was opened before, and by
// one opened after.
func TestASubscriptionMadeAgain(t *testing.T) {
	b := newBench(t, 1, &tapedeckv1.CreateSubscriptionRequest{})
	b.publish(0, 6)
	if err := b.upTo(b.c, 5); !errors.Is(err, errOutage) {
		t.Fatal(err)
	}
	if err := b.c.DeleteSubscription(b.ctx, "orders/books"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.c.CreateSubscription(b.ctx, &tapedeckv1.CreateSubscriptionRequest{Topic: "orders",
		Name: "books"}); err != nil {
		t.Fatal(err)
	}
	if err := b.upTo(b.c, 5); !errors.Is(err, sqlstore.ErrReplaced) {
		t.Fatal(err)
	}
	store, err := sqlstore.Open(b.ctx, b.c, b.db, sqlstore.Config{Subscription: "orders/books"})
	if err != nil {
		t.Fatal(err)
	}
	b.store = store
	if err := b.upTo(b.c, 5); !errors.Is(err, sqlstore.ErrReplaced) {
		t.Fatal(err)
	}
	b.want(0, numbers(0, 5, 1))
}

func TestModeSharedIsRefused(t *testing.T) {
	b := newBench(t, 1, &tapedeckv1.CreateSubscriptionRequest{})
	if _, err := b.c.CreateSubscription(b.ctx, &tapedeckv1.CreateSubscriptionRequest{Topic: "orders", Name: "work",
		Mode: tapedeckv1.Mode_MODE_SHARED}); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlstore.Open(b.ctx, b.c, b.db, sqlstore.Config{Subscription: "orders/work"}); err == nil {
		t.Fatal("it was taken")
	}
}

// TestTheExample runs what the documentation shows.
func TestTheExample(t *testing.T) {
	if err := run(t.Context(), "", filepath.Join(t.TempDir(), "books.db")); err != nil {
		t.Fatal(err)
	}
}
