package main

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tapedeck/tapedeck/client"
	"github.com/tapedeck/tapedeck/client/sqlstore"
)

// broker is what a subscription promises, and no more: at least once, in order per
// partition, with generations, and acks of a lost partition refused.
type broker struct {
	counts     []uint64 // messages, by partition
	cursors    []uint64
	fences     []uint64
	generation uint64
}

func newBroker(counts ...uint64) *broker {
	return &broker{counts: counts, cursors: make([]uint64, len(counts)), fences: make([]uint64, len(counts))}
}

// take gives all partitions to the caller, from their cursors on.
func (b *broker) take(rng *rand.Rand) []*client.Message {
	b.generation++
	var queues [][]*client.Message
	for p := range b.counts {
		b.fences[p] = b.generation
		var q []*client.Message
		for o := b.cursors[p]; o < b.counts[p]; o++ {
			q = append(q, &client.Message{Topic: "orders", Partition: uint32(p), Offset: o, Generation: b.generation})
		}
		if len(q) > 0 {
			queues = append(queues, q)
		}
	}
	var out []*client.Message
	for len(queues) > 0 {
		i := rng.IntN(len(queues))
		out = append(out, queues[i][0])
		if queues[i] = queues[i][1:]; len(queues[i]) == 0 {
			queues = append(queues[:i], queues[i+1:]...)
		}
	}
	return out
}

// ack acks up to a message, and says whether that was accepted.
func (b *broker) ack(m *client.Message) bool {
	if m.Generation < b.fences[m.Partition] {
		return false
	}
	b.cursors[m.Partition] = max(b.cursors[m.Partition], m.Offset+1)
	return true
}

const schema = "CREATE TABLE effect (part INTEGER NOT NULL, seq INTEGER NOT NULL, member TEXT NOT NULL)"

// templates are empty databases with both tables, one per way of journaling.
var templates = sync.OnceValues(func() (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, mode := range modes {
		dir, err := os.MkdirTemp("", "tapedeck-template-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		db, store, err := openWorld(dir, mode)
		if err != nil {
			return nil, err
		}
		if err := store.Init(context.Background()); err != nil {
			return nil, err
		}
		if _, err := db.Exec(schema); err != nil {
			return nil, err
		}
		if err := db.Close(); err != nil {
			return nil, err
		}
		if out[mode], err = os.ReadFile(filepath.Join(dir, "world.db")); err != nil {
			return nil, err
		}
	}
	return out, nil
})

// modes are SQLite's ways of journaling.
var modes = []string{"WAL", "DELETE"}

func openWorld(dir, mode string) (*sql.DB, *sqlstore.Store, error) {
	// Nothing here loses power, so nothing needs to be synced.
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "world.db")+
		"?_pragma=busy_timeout(60000)&_pragma=synchronous(OFF)&_pragma=journal_mode("+mode+")")
	if err != nil {
		return nil, nil, err
	}
	store, err := sqlstore.New(db, sqlstore.Config{Subscription: "orders/books", SubscriptionID: 7})
	return db, store, err
}

// world is a database of one run. A crash leaves its files as they are and goes on
// with a copy of them, so that it is SQLite that brings them in order.
type world struct {
	t       *testing.T
	name    string // of the run, for messages
	mode    string
	dir     string
	crashes int
	db      *sql.DB
	store   *sqlstore.Store
	left    []*sql.DB // of processes that crashed
	b       *broker
	rng     *rand.Rand
}

func newWorld(t *testing.T, name string, seed uint64) *world {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 7))
	files, err := templates()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, name: name, mode: modes[rng.IntN(len(modes))], rng: rng,
		b: newBroker(1+rng.Uint64N(4), rng.Uint64N(4))}
	if w.dir, err = os.MkdirTemp("", "tapedeck-world-"); err != nil {
		t.Fatal(err)
	}
	first := filepath.Join(w.dir, "0")
	if err := os.Mkdir(first, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(first, "world.db"), files[w.mode], 0o600); err != nil {
		t.Fatal(err)
	}
	if w.db, w.store, err = openWorld(first, w.mode); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) close() {
	for _, db := range append(w.left, w.db) {
		_ = db.Close()
	}
	_ = os.RemoveAll(w.dir)
}

// crash copies the files as they are at this moment and goes on with the copy.
func (w *world) crash() {
	from := filepath.Join(w.dir, fmt.Sprint(w.crashes))
	w.crashes++
	to := filepath.Join(w.dir, fmt.Sprint(w.crashes))
	err := os.Mkdir(to, 0o700)
	if err != nil {
		w.t.Fatal(err)
	}
	err = filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, "-shm") { // shared memory ends with its processes
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, d.Name()), content, 0o600)
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.left = append(w.left, w.db)
	if w.db, w.store, err = openWorld(to, w.mode); err != nil {
		w.t.Fatal(err)
	}
}

// effect is the handler of a member.
func effect(member string) sqlstore.Handler {
	return func(ctx context.Context, tx *sql.Tx, m *client.Message) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO effect (part, seq, member) VALUES (?, ?, ?)",
			int64(m.Partition), int64(m.Offset), member)
		return err
	}
}

// check fails unless the effects of all messages up to each row are there once, in
// order, and no cursor of the broker is ahead of its row.
func (w *world) check(all bool) {
	w.t.Helper()
	for p, count := range w.b.counts {
		next, _, err := w.store.Next(w.t.Context(), uint32(p))
		if err != nil {
			w.t.Fatalf("%s: %v", w.name, err)
		}
		var seqs []uint64
		rows, err := w.db.Query("SELECT seq FROM effect WHERE part = ? ORDER BY rowid", p)
		if err != nil {
			w.t.Fatalf("%s: %v", w.name, err)
		}
		for rows.Next() {
			var seq uint64
			if err := rows.Scan(&seq); err != nil {
				w.t.Fatalf("%s: %v", w.name, err)
			}
			seqs = append(seqs, seq)
		}
		if err := rows.Err(); err != nil {
			w.t.Fatalf("%s: %v", w.name, err)
		}
		for i, seq := range seqs {
			if seq != uint64(i) {
				w.t.Fatalf("%s: the effects of partition %d are %v", w.name, p, seqs)
			}
		}
		switch {
		case uint64(len(seqs)) != next:
			w.t.Fatalf("%s: partition %d has effects %v, and its row is at %d", w.name, p, seqs, next)
		case w.b.cursors[p] > next:
			w.t.Fatalf("%s: partition %d was acked up to %d, and its row is at %d", w.name, p, w.b.cursors[p], next)
		case all && (next != count || w.b.cursors[p] != count):
			w.t.Fatalf("%s: partition %d ends at %d, acked up to %d, of %d", w.name, p, next, w.b.cursors[p], count)
		}
	}
}
