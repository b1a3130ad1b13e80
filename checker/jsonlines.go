package checker

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Limits of a history file.
const (
	MaxLineBytes = 16 << 20
	MaxOps       = 1 << 28
)

// messagesPerLine cuts final logs into lines that stay far below MaxLineBytes.
const messagesPerLine = 1000

// line is one line of a file: an operation, or a piece of the final state.
type line struct {
	Op
	Log     *FinalLog          `json:"log,omitempty"`
	Cursors *FinalSubscription `json:"cursors,omitempty"`
	Drained *bool              `json:"drained,omitempty"`
}

// finalLine is a line without an operation.
type finalLine struct {
	Log     *FinalLog          `json:"log,omitempty"`
	Cursors *FinalSubscription `json:"cursors,omitempty"`
	Drained *bool              `json:"drained,omitempty"`
}

// Read reads a history file: operations, then the final state. Errors name the
// line. What it returns has been validated.
func Read(r io.Reader) (*History, Final, error) {
	h, final := &History{}, Final{}
	_, err := read(r, h, &final)
	return h, final, err
}

// ReadFrom appends the operations of a history file; a final state in it is
// passed over. It implements io.ReaderFrom.
func (h *History) ReadFrom(r io.Reader) (int64, error) {
	return read(r, h, &Final{})
}

func read(r io.Reader, h *History, final *Final) (int64, error) {
	buffered := bufio.NewReaderSize(r, 1<<16)
	var n int64
	var long []byte
	f := &fast{names: map[string]string{}}
	for number := 1; ; number++ {
		text, err := readLine(buffered, &long)
		n += int64(len(text))
		if err != nil && !errors.Is(err, io.EOF) {
			return n, fmt.Errorf("history line %d: %w", number, err)
		}
		if len(bytes.TrimSpace(text)) > 0 {
			if err := readOne(f, text, h, final); err != nil {
				return n, fmt.Errorf("history line %d: %w", number, err)
			}
		}
		if err != nil {
			break
		}
	}
	if err := h.Validate(); err != nil {
		return n, fmt.Errorf("history: %w", err)
	}
	return n, nil
}

// readLine returns the next line, its end included; it is good until the next call.
func readLine(r *bufio.Reader, long *[]byte) ([]byte, error) {
	text, err := r.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return text, err
	}
	*long = append((*long)[:0], text...)
	for errors.Is(err, bufio.ErrBufferFull) {
		text, err = r.ReadSlice('\n')
		if len(*long)+len(text) > MaxLineBytes {
			return nil, fmt.Errorf("is longer than %d bytes; cut logs into several lines", MaxLineBytes)
		}
		*long = append(*long, text...)
	}
	return *long, err
}

func readOne(f *fast, text []byte, h *History, final *Final) error {
	if n := len(h.Ops); n < MaxOps {
		h.Ops = append(h.Ops, Op{})
		if f.operation(text, &h.Ops[n]) {
			return nil
		}
		h.Ops = h.Ops[:n]
	}
	var piece FinalLog
	if f.log(text, &piece) {
		final.Logs = append(final.Logs, piece)
		return nil
	}
	l := line{Op: Op{Return: Open}}
	if err := json.Unmarshal(text, &l); err != nil {
		return err
	}
	isOp, pieces := l.Kind() != "", 0
	for _, there := range [...]bool{l.Log != nil, l.Cursors != nil, l.Drained != nil} {
		if there {
			pieces++
		}
	}
	switch {
	case isOp && pieces > 0 || pieces > 1:
		return fmt.Errorf("is several things at once; write one operation or one piece of the final state per line")
	case l.Log != nil:
		final.Logs = append(final.Logs, *l.Log)
	case l.Cursors != nil:
		final.Subscriptions = append(final.Subscriptions, *l.Cursors)
	case l.Drained != nil:
		final.Drained = *l.Drained
	case !isOp:
		return fmt.Errorf("holds neither an operation nor a final state; see the package's documentation for the form")
	case len(h.Ops) == MaxOps:
		return fmt.Errorf("is one operation too many; at most %d are read", MaxOps)
	default:
		h.Ops = append(h.Ops, l.Op)
	}
	return nil
}

// WriteTo writes the operations as JSON lines. It implements io.WriterTo.
func (h *History) WriteTo(w io.Writer) (int64, error) {
	counted := &countingWriter{w: w}
	buffered := bufio.NewWriterSize(counted, 1<<16)
	encoder := json.NewEncoder(buffered)
	encoder.SetEscapeHTML(false)
	for i := range h.Ops {
		if err := encoder.Encode(&h.Ops[i]); err != nil {
			return counted.n, fmt.Errorf("write operation %d: %w", i, err)
		}
	}
	err := buffered.Flush()
	return counted.n, err
}

// Write writes a history and its final state; Read reads them back.
func Write(w io.Writer, h *History, final Final) error {
	if _, err := h.WriteTo(w); err != nil {
		return err
	}
	buffered := bufio.NewWriterSize(w, 1<<16)
	encoder := json.NewEncoder(buffered)
	encoder.SetEscapeHTML(false)
	for i := range final.Logs {
		for _, piece := range cut(final.Logs[i]) {
			if err := encoder.Encode(finalLine{Log: &piece}); err != nil {
				return fmt.Errorf("write the final log of %s/%d: %w", piece.Topic, piece.Partition, err)
			}
		}
	}
	for i := range final.Subscriptions {
		if err := encoder.Encode(finalLine{Cursors: &final.Subscriptions[i]}); err != nil {
			return fmt.Errorf("write the cursors of %s: %w", final.Subscriptions[i].Subscription, err)
		}
	}
	if final.Drained {
		if err := encoder.Encode(finalLine{Drained: &final.Drained}); err != nil {
			return err
		}
	}
	return buffered.Flush()
}

// cut splits a log into pieces for one line each, at least one.
func cut(l FinalLog) []FinalLog {
	rest := l.Messages
	var pieces []FinalLog
	for len(pieces) == 0 || len(rest) > 0 {
		piece := l
		piece.Messages = rest[:min(len(rest), messagesPerLine)]
		rest = rest[len(piece.Messages):]
		pieces = append(pieces, piece)
	}
	return pieces
}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// PayloadID hashes a payload for recorders that have no ids of their own
// (FNV-1a; made for telling payloads apart, not for safety).
func PayloadID(payload []byte) uint64 {
	h := uint64(14695981039346656037)
	for _, b := range payload {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return h
}
