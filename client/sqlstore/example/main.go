// Command example keeps accounts in SQLite from messages of Tapedeck: whatever
// fails on the way, and however often a message comes, each amount is booked once.
//
// It takes a running cluster (--server), or starts a node of its own.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/client"
	"github.com/tapedeck/tapedeck/client/sqlstore"
)

// deposit is what a message says.
type deposit struct {
	Account string `json:"account"`
	Cents   int64  `json:"cents"`
}

// errOutage is what the handler fails with now and then, on purpose.
var errOutage = errors.New("the light went out")

func main() {
	server := flag.String("server", "", "address of a cluster; empty: a node is started in this process")
	file := flag.String("db", "", "SQLite file to keep; empty: a temporary one")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, *server, *file); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, server, file string) error {
	dir, err := os.MkdirTemp("", "tapedeck-sqlstore-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if file == "" {
		file = filepath.Join(dir, "books.db")
	}
	if server == "" {
		n, err := startNode(ctx, dir)
		if err != nil {
			return err
		}
		defer n.stop()
		server = n.address
	}
	c, err := client.New(client.Config{Addresses: []string{server}})
	if err != nil {
		return err
	}
	defer c.Close()
	db, err := openBooks(ctx, file)
	if err != nil {
		return err
	}
	defer db.Close()
	return keep(ctx, c, db)
}

// openBooks opens the database. SQLite has one writer at a time: the others wait.
func openBooks(ctx context.Context, file string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)")
	if err != nil {
		return nil, err
	}
	_, err = db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS account (name TEXT PRIMARY KEY, cents INTEGER NOT NULL)`)
	return db, err
}

// book is the handler: what it does, and that it was done, is one transaction.
func book(ctx context.Context, tx *sql.Tx, m *client.Message) error {
	var d deposit
	if err := json.Unmarshal(m.Payload, &d); err != nil {
		return fmt.Errorf("partition %d, offset %d: %w", m.Partition, m.Offset, err)
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO account (name, cents) VALUES (?, ?)
		ON CONFLICT (name) DO UPDATE SET cents = cents + excluded.cents`, d.Account, d.Cents)
	return err
}

func keep(ctx context.Context, c *client.Client, db *sql.DB) error {
	topic := fmt.Sprintf("deposits-%d", time.Now().UnixNano())
	const count = 40
	if err := publish(ctx, c, topic, count); err != nil {
		return err
	}
	store, err := sqlstore.Open(ctx, c, db, sqlstore.Config{Subscription: topic + "/books"})
	if err != nil {
		return err
	}
	// The light goes out after every seventh booking, before its commit.
	calls, outages := 0, 0
	shaky := func(ctx context.Context, tx *sql.Tx, m *client.Message) error {
		if err := book(ctx, tx, m); err != nil {
			return err
		}
		if calls++; calls%7 == 0 {
			return errOutage
		}
		return nil
	}
	for {
		err := until(ctx, c, topic, func(ctx context.Context) error { return store.Run(ctx, c, shaky) })
		if errors.Is(err, errOutage) {
			outages++
			continue
		}
		if err != nil {
			return err
		}
		break
	}
	if err := show(ctx, db, fmt.Sprintf("%d deposits, booked with %d outages", count, outages)); err != nil {
		return err
	}
	// All come again, and are recognized.
	if _, err := c.Seek(ctx, &tapedeckv1.SeekRequest{Subscription: topic + "/books",
		Target: &tapedeckv1.SeekRequest_Earliest{}}); err != nil {
		return err
	}
	err = until(ctx, c, topic, func(ctx context.Context) error { return store.Run(ctx, c, book) })
	if err != nil {
		return err
	}
	return show(ctx, db, "the same deposits delivered again")
}

// publish makes the topic, its subscription and deposits for three accounts.
func publish(ctx context.Context, c *client.Client, topic string, count int) error {
	if _, err := c.CreateTopic(ctx, &tapedeckv1.CreateTopicRequest{Name: topic, Partitions: 2, Replicas: 1}); err != nil {
		return err
	}
	if _, err := c.CreateSubscription(ctx, &tapedeckv1.CreateSubscriptionRequest{
		Topic: topic, Name: "books",
	}); err != nil {
		return err
	}
	p, err := c.NewProducer(ctx, topic)
	if err != nil {
		return err
	}
	for i := range count {
		d := deposit{[]string{"ada", "bob", "eve"}[i%3], 100}
		payload, err := json.Marshal(d)
		if err != nil {
			return err
		}
		if _, err := p.Publish(ctx, &client.Message{Key: []byte(d.Account), Payload: payload}); err != nil {
			return err
		}
	}
	return p.Close(ctx)
}

// until runs work until the subscription has no lag, or work fails.
func until(ctx context.Context, c *client.Client, topic string, work func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- work(ctx) }()
	for {
		select {
		case err := <-done:
			return err
		case <-time.After(50 * time.Millisecond):
		}
		r, err := c.GetSubscription(ctx, &tapedeckv1.GetSubscriptionRequest{Subscription: topic + "/books"})
		if err != nil {
			return errors.Join(err, ctx.Err())
		}
		lag := uint64(0)
		for _, p := range r.GetPartitions() {
			lag += p.GetLag()
		}
		if lag == 0 {
			stop()
			return <-done
		}
	}
}

func show(ctx context.Context, db *sql.DB, title string) error {
	fmt.Println(title)
	rows, err := db.QueryContext(ctx, "SELECT name, cents FROM account ORDER BY name")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var cents int64
		if err := rows.Scan(&name, &cents); err != nil {
			return err
		}
		fmt.Printf("  %-4s %6.2f\n", name, float64(cents)/100)
	}
	return rows.Err()
}
