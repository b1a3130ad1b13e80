package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/tapedeck/tapedeck/client"
)

var (
	// ErrFenced: the message was delivered to a member that has lost the partition
	// since. Do not ack it; its new owner has it.
	ErrFenced = errors.New("fenced: a later delivery of the partition has been seen")
	// ErrReplaced: the rows are of an earlier subscription of the same name.
	ErrReplaced = errors.New("the table holds rows of a subscription of this name that was deleted; " +
		"Forget makes the new one begin at its own cursors")
)

// errAgain: the row changed between two statements; the whole is to be done again.
var errAgain = errors.New("the row changed meanwhile")

// tries bounds how often a transaction is begun anew because of errAgain.
const tries = 5

// GapError: the message is not the next one. [From, To) was not applied.
type GapError struct {
	Partition uint32
	From, To  uint64
}

// Error implements error.
func (e *GapError) Error() string {
	return fmt.Sprintf("partition %d: offsets %d to %d were not applied and come before %d",
		e.Partition, e.From, e.To-1, e.To)
}

// Config says what a Store keeps and where.
type Config struct {
	Subscription string // topic/name, in mode ordered
	// SubscriptionID is the broker's, from 1; see GetSubscription. Open asks for it.
	SubscriptionID uint64
	Table          string         // tapedeck_cursor
	Numbered       bool           // the driver wants $1 and not ?: PostgreSQL
	Tx             *sql.TxOptions // of each transaction
	// Skipped is told of ranges [from, to) that retention took before they were
	// applied; of one range perhaps again after a crash.
	Skipped func(partition uint32, from, to uint64)
}

// Handler does in tx what a message asks for. It must not end tx. When it fails,
// nothing of it stays.
type Handler func(ctx context.Context, tx *sql.Tx, m *client.Message) error

// Outcome is what became of a message without an error. It may be acked.
type Outcome uint8

// Outcomes.
const (
	Applied  Outcome = iota + 1 // by this call
	Repeated                    // it had been applied before
)

// Store is a subscription's rows in a database. It is safe for concurrent use.
type Store struct {
	db    *sql.DB
	cfg   Config
	topic string

	create, move, read, insert, claim, forget string
}

var tableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$`)

// New makes a Store for one's own loop around Apply. Open does so with what the
// broker knows.
func New(db *sql.DB, cfg Config) (*Store, error) {
	if cfg.Table == "" {
		cfg.Table = "tapedeck_cursor"
	}
	topic, name, ok := strings.Cut(cfg.Subscription, "/")
	switch {
	case !ok || topic == "" || name == "":
		return nil, fmt.Errorf("subscription %q: must be topic/name", cfg.Subscription)
	case cfg.SubscriptionID == 0 || cfg.SubscriptionID > math.MaxInt64:
		return nil, fmt.Errorf("subscription id %d: take it from GetSubscription", cfg.SubscriptionID)
	case !tableName.MatchString(cfg.Table):
		return nil, fmt.Errorf("table %q: use letters, digits and _, with a schema before one dot", cfg.Table)
	}
	s := &Store{db: db, cfg: cfg, topic: topic}
	const row = " WHERE subscription = ? AND part = ?"
	s.create = s.query(`CREATE TABLE IF NOT EXISTS @ (
	subscription VARCHAR(300) NOT NULL,
	part BIGINT NOT NULL,
	subscription_id BIGINT NOT NULL,
	next_offset BIGINT NOT NULL,
	generation BIGINT NOT NULL,
	PRIMARY KEY (subscription, part)
)`)
	s.move = s.query("UPDATE @ SET next_offset = ?, generation = ?" + row +
		" AND subscription_id = ? AND next_offset = ? AND generation <= ?")
	s.read = s.query("SELECT subscription_id, next_offset, generation FROM @" + row)
	s.insert = s.query("INSERT INTO @ (subscription, part, subscription_id, next_offset, generation)" +
		" VALUES (?, ?, ?, ?, ?)")
	s.claim = s.query("UPDATE @ SET generation = ?" + row + " AND generation < ?")
	s.forget = s.query("DELETE FROM @ WHERE subscription = ?")
	return s, nil
}

// query writes the table for @, and numbers the arguments if they must be.
func (s *Store) query(text string) string {
	text = strings.Replace(text, "@", s.cfg.Table, 1)
	if !s.cfg.Numbered {
		return text
	}
	parts := strings.Split(text, "?")
	var b strings.Builder
	for i, part := range parts {
		if i > 0 {
			b.WriteString("$" + strconv.Itoa(i))
		}
		b.WriteString(part)
	}
	return b.String()
}

// Init creates the table if it is not there.
func (s *Store) Init(ctx context.Context) error {
	if _, err := s.db.ExecContext(ctx, s.create); err != nil {
		return fmt.Errorf("create table %s: %w", s.cfg.Table, err)
	}
	return nil
}

// Next is the offset of the next message to apply of a partition; not ok: none
// was applied yet, it begins where the broker says.
func (s *Store) Next(ctx context.Context, partition uint32) (next uint64, ok bool, err error) {
	at, err := s.readRow(ctx, s.db, partition)
	if err != nil || at == nil {
		return 0, false, err
	}
	return uint64(at.next), true, nil
}

// Forget removes the subscription's rows, in a transaction that may take effects
// back, too: the subscription then begins at the broker's cursors. It is meant
// for when no member runs: to replay, stop them, Forget, seek, start them.
func (s *Store) Forget(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, s.forget, s.cfg.Subscription); err != nil {
		return fmt.Errorf("remove the rows of %s: %w", s.cfg.Subscription, err)
	}
	return nil
}

// Apply applies a message of a subscription, unless it was applied before; with
// either outcome it may be acked. Errors are ErrFenced, ErrReplaced, a *GapError,
// the handler's, and the database's. After an error of the commit it is open
// whether the message was applied: when it comes again, the row tells.
func (s *Store) Apply(ctx context.Context, m *client.Message, f Handler) (Outcome, error) {
	outcome, _, err := s.apply(ctx, m, f, false)
	return outcome, err
}

// apply also gives the next offset after it. With over, the row goes over what
// lies between it and the message.
func (s *Store) apply(ctx context.Context, m *client.Message, f Handler, over bool) (Outcome, uint64, error) {
	switch {
	case m.Topic != s.topic:
		return 0, 0, fmt.Errorf("the message is of topic %q and not of subscription %s", m.Topic, s.cfg.Subscription)
	case m.Generation == 0 || m.Generation > math.MaxInt64:
		return 0, 0, fmt.Errorf("generation %d: the message was not delivered by a subscription", m.Generation)
	case m.Offset >= math.MaxInt64:
		return 0, 0, fmt.Errorf("offset %d is beyond what the table holds", m.Offset)
	}
	for try := 1; ; try++ {
		outcome, next, err := s.attempt(ctx, m, f, over)
		if err == nil || try == tries || !errors.Is(err, errAgain) {
			return outcome, next, err
		}
	}
}

func (s *Store) attempt(ctx context.Context, m *client.Message, f Handler, over bool) (Outcome, uint64, error) {
	tx, err := s.db.BeginTx(ctx, s.cfg.Tx)
	if err != nil {
		return 0, 0, fmt.Errorf("begin a transaction: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	// The write comes first: it takes the lock, so what is read after it stays.
	outcome, next := Applied, m.Offset+1
	moved, err := s.moveRow(ctx, tx, m, int64(m.Offset))
	if err == nil && !moved {
		outcome, next, err = s.settle(ctx, tx, m, over)
	}
	if err != nil {
		return 0, 0, err
	}
	if outcome == Applied {
		if err := f(ctx, tx, m); err != nil {
			return 0, 0, err
		}
	}
	if err := tx.Commit(); err != nil {
		return 0, 0, fmt.Errorf("commit partition %d, offset %d: %w", m.Partition, m.Offset, err)
	}
	return outcome, next, nil
}

// settle finds out why the row was not at the message.
func (s *Store) settle(ctx context.Context, tx *sql.Tx, m *client.Message, over bool) (Outcome, uint64, error) {
	at, err := s.readRow(ctx, tx, m.Partition)
	switch {
	case err != nil:
		return 0, 0, err
	case at == nil:
		if _, err := tx.ExecContext(ctx, s.insert, s.cfg.Subscription, int64(m.Partition), int64(s.cfg.SubscriptionID),
			int64(m.Offset)+1, int64(m.Generation)); err != nil {
			// Perhaps somebody else's row is there by now.
			return 0, 0, fmt.Errorf("%w: begin the row of partition %d: %w", errAgain, m.Partition, err)
		}
		return Applied, m.Offset + 1, nil
	case at.id != int64(s.cfg.SubscriptionID):
		return 0, 0, fmt.Errorf("subscription %s: %w", s.cfg.Subscription, ErrReplaced)
	case at.generation > int64(m.Generation):
		return 0, 0, fmt.Errorf("partition %d, offset %d of generation %d, the row is of %d: %w",
			m.Partition, m.Offset, m.Generation, at.generation, ErrFenced)
	case at.next > int64(m.Offset):
		return Repeated, uint64(at.next), s.claimRow(ctx, tx, m, at)
	case at.next == int64(m.Offset):
		return 0, 0, errAgain
	case !over:
		return 0, 0, &GapError{m.Partition, uint64(at.next), m.Offset}
	}
	if moved, err := s.moveRow(ctx, tx, m, at.next); err != nil || !moved {
		return 0, 0, errors.Join(err, errAgain)
	}
	return Applied, m.Offset + 1, nil
}

// moveRow moves the row from an offset to behind the message; false: it is not
// there, or the message's generation is over.
func (s *Store) moveRow(ctx context.Context, tx *sql.Tx, m *client.Message, from int64) (bool, error) {
	r, err := tx.ExecContext(ctx, s.move, int64(m.Offset)+1, int64(m.Generation), s.cfg.Subscription,
		int64(m.Partition), int64(s.cfg.SubscriptionID), from, int64(m.Generation))
	if err != nil {
		return false, fmt.Errorf("move the row of partition %d: %w", m.Partition, err)
	}
	n, err := r.RowsAffected()
	if err != nil {
		return false, fmt.Errorf("move the row of partition %d: %w", m.Partition, err)
	}
	return n == 1, nil
}

// claimRow fences older generations by what came again.
func (s *Store) claimRow(ctx context.Context, tx *sql.Tx, m *client.Message, at *rowState) error {
	if at.generation == int64(m.Generation) {
		return nil
	}
	if _, err := tx.ExecContext(ctx, s.claim, int64(m.Generation), s.cfg.Subscription, int64(m.Partition),
		int64(m.Generation)); err != nil {
		return fmt.Errorf("claim the row of partition %d: %w", m.Partition, err)
	}
	return nil
}

// rowState is a row's content.
type rowState struct {
	id, next, generation int64
}

type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// readRow is nil if there is no row.
func (s *Store) readRow(ctx context.Context, q querier, partition uint32) (*rowState, error) {
	var at rowState
	err := q.QueryRowContext(ctx, s.read, s.cfg.Subscription, int64(partition)).
		Scan(&at.id, &at.next, &at.generation)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the row of partition %d: %w", partition, err)
	}
	return &at, nil
}
