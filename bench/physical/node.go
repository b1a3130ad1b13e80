//go:build linux

package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	headerBytes = 16 // length u32, log u32, number u64
	answerBytes = 12 // log u32, number u64
	majority    = 2
	maxVector   = 512 // frames per write
)

var le = binary.LittleEndian

// entry is a frame on its way. acks counts who has it on disk, uses who still needs the bytes.
type entry struct {
	bytes  []byte
	log    uint32
	number uint64
	from   *answers
	acks   atomic.Int32
	uses   atomic.Int32
}

var entries = sync.Pool{New: func() any { return &entry{} }}

// used gives the bytes back once nobody needs them.
func (e *entry) used() {
	if e.uses.Add(-1) == 0 {
		entries.Put(e)
	}
}

// durable notes one copy more.
func (e *entry) durable() {
	if e.acks.Add(1) == majority {
		e.from.put(e.log, e.number)
	}
}

// read takes a frame off a connection.
func (e *entry) read(r io.Reader) error {
	var head [headerBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	size := headerBytes + int(le.Uint32(head[:]))
	if cap(e.bytes) < size {
		e.bytes = make([]byte, size)
	}
	e.bytes = e.bytes[:size]
	copy(e.bytes, head[:])
	e.log, e.number = le.Uint32(head[4:]), le.Uint64(head[8:])
	_, err := io.ReadFull(r, e.bytes[headerBytes:])
	return err
}

// list hands entries from one goroutine to another, all there are at a time.
type list struct {
	mu      sync.Mutex
	some    sync.Cond
	entries []*entry
}

func newList() *list {
	l := &list{}
	l.some.L = &l.mu
	return l
}

func (l *list) put(e *entry) {
	l.mu.Lock()
	l.entries = append(l.entries, e)
	l.mu.Unlock()
	l.some.Signal()
}

// take waits for entries; spare is what the last take returned.
func (l *list) take(spare []*entry) []*entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.entries) == 0 {
		l.some.Wait()
	}
	got := l.entries
	l.entries = spare[:0]
	return got
}

// answers writes answers to a connection, those that wait together.
type answers struct {
	mu   sync.Mutex
	some sync.Cond
	buf  []byte
	conn net.Conn
}

func newAnswers(c net.Conn) *answers {
	a := &answers{conn: c}
	a.some.L = &a.mu
	go a.run()
	return a
}

func (a *answers) put(log uint32, number uint64) {
	a.mu.Lock()
	a.buf = le.AppendUint64(le.AppendUint32(a.buf, log), number)
	a.mu.Unlock()
	a.some.Signal()
}

func (a *answers) run() {
	var spare []byte
	for {
		a.mu.Lock()
		for len(a.buf) == 0 {
			a.some.Wait()
		}
		out := a.buf
		a.buf = spare[:0]
		a.mu.Unlock()
		if _, err := a.conn.Write(out); err != nil {
			return // whoever it was is gone
		}
		spare = out
	}
}

// serve is a node: --followers makes it the leader.
func serve(args []string) error {
	flags := flag.NewFlagSet("node", flag.ExitOnError)
	dir := flags.String("dir", "", "folder")
	logs := flags.Int("logs", 1, "files")
	followers := flags.String("followers", "", "addresses")
	_ = flags.Parse(args) // it exits
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(*dir, 0o777); err != nil {
		return err
	}
	n := &node{}
	for i := range *logs {
		f, err := os.Create(filepath.Join(*dir, fmt.Sprintf("log-%d", i)))
		if err != nil {
			return err
		}
		q := newList()
		n.logs = append(n.logs, q)
		go writeLog(f, q)
	}
	if *followers != "" {
		for _, a := range strings.Split(*followers, ",") {
			c, err := net.Dial("tcp", a)
			if err != nil {
				return err
			}
			n.followers = append(n.followers, newFollower(c, *logs))
		}
	}
	fmt.Println(l.Addr())
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go n.take(c)
	}
}

type node struct {
	logs      []*list
	followers []*follower
}

// take reads a connection's frames.
func (n *node) take(c net.Conn) {
	r := bufio.NewReaderSize(c, 256<<10)
	to := newAnswers(c)
	for {
		e := entries.Get().(*entry)
		if e.read(r) != nil {
			return
		}
		e.from = to
		e.uses.Store(int32(1 + len(n.followers)))
		e.acks.Store(int32(0))
		if len(n.followers) == 0 {
			e.acks.Store(majority - 1) // a follower answers for itself alone
		}
		for _, f := range n.followers {
			f.forward(e)
		}
		n.logs[int(e.log)%len(n.logs)].put(e)
	}
}

// writeLog appends and syncs: one sync for all that waited.
func writeLog(f *os.File, q *list) {
	var got []*entry
	for {
		got = q.take(got)
		for rest := got; len(rest) > 0; {
			n := min(len(rest), maxVector)
			if err := writeAll(f, rest[:n]); err != nil {
				exit(err)
			}
			rest = rest[n:]
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			exit(err)
		}
		for _, e := range got {
			e.durable()
			e.used()
		}
	}
}

func exit(err error) {
	fmt.Fprintln(os.Stderr, "physical node:", err)
	os.Exit(1)
}

func writeAll(f *os.File, es []*entry) error {
	vector := make([][]byte, len(es))
	for i, e := range es {
		vector[i] = e.bytes
	}
	for len(vector) > 0 {
		n, err := unix.Writev(int(f.Fd()), vector)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		for len(vector) > 0 && n >= len(vector[0]) {
			n -= len(vector[0])
			vector = vector[1:]
		}
		if n > 0 {
			vector[0] = vector[0][n:]
		}
	}
	return nil
}

// follower is a leader's connection to one.
type follower struct {
	conn net.Conn
	out  *list
	mu   sync.Mutex
	open [][]*entry // by log: sent and not answered, in order
}

func newFollower(c net.Conn, logs int) *follower {
	f := &follower{conn: c, out: newList(), open: make([][]*entry, logs)}
	go f.send()
	go f.hear()
	return f
}

func (f *follower) forward(e *entry) {
	e.uses.Add(1) // until it has answered
	f.mu.Lock()
	at := int(e.log) % len(f.open)
	f.open[at] = append(f.open[at], e)
	f.mu.Unlock()
	f.out.put(e)
}

func (f *follower) send() {
	var got []*entry
	for {
		got = f.out.take(got)
		for rest := got; len(rest) > 0; {
			n := min(len(rest), maxVector)
			vector := make(net.Buffers, n)
			for i, e := range rest[:n] {
				vector[i] = e.bytes
			}
			if _, err := vector.WriteTo(f.conn); err != nil {
				exit(err)
			}
			for _, e := range rest[:n] {
				e.used()
			}
			rest = rest[n:]
		}
	}
}

// hear takes a follower's answers, which come in order for each log.
func (f *follower) hear() {
	r := bufio.NewReader(f.conn)
	var answer [answerBytes]byte
	for {
		if _, err := io.ReadFull(r, answer[:]); err != nil {
			exit(err)
		}
		at := int(le.Uint32(answer[:])) % len(f.open)
		f.mu.Lock()
		e := f.open[at][0]
		f.open[at] = f.open[at][1:]
		f.mu.Unlock()
		e.durable()
		e.used()
	}
}
