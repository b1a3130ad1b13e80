package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/tapedeck/tapedeck/client"
)

// printer writes a command's result: tables and sentences for people, or JSON,
// one value per line.
type printer struct {
	out  io.Writer
	json bool
}

func newPrinter(out io.Writer, asJSON bool) *printer { return &printer{out, asJSON} }

// proto prints an answer as the API's JSON, or calls text.
func (p *printer) proto(m proto.Message, text func() error) error {
	if !p.json {
		return text()
	}
	raw, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	var line bytes.Buffer
	if err := json.Compact(&line, raw); err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	line.WriteByte('\n')
	_, err = p.out.Write(line.Bytes())
	return err
}

// value prints a value as JSON, or a sentence.
func (p *printer) value(v any, format string, args ...any) error {
	if !p.json {
		_, err := fmt.Fprintf(p.out, format+"\n", args...)
		return err
	}
	enc := json.NewEncoder(p.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// table prints rows under a head, in columns.
func (p *printer) table(head string, rows [][]any) error {
	w := tabwriter.NewWriter(p.out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, strings.ReplaceAll(head, " ", "\t"))
	for _, row := range rows {
		for i, cell := range row {
			if i > 0 {
				fmt.Fprint(w, "\t")
			}
			if text := fmt.Sprint(cell); text == "" {
				fmt.Fprint(w, "-")
			} else {
				fmt.Fprint(w, text)
			}
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

// facts prints names and values, one per line.
func (p *printer) facts(pairs ...any) {
	w := tabwriter.NewWriter(p.out, 0, 8, 2, ' ', 0)
	for i := 0; i+1 < len(pairs); i += 2 {
		if text := fmt.Sprint(pairs[i+1]); text != "" {
			fmt.Fprintf(w, "%v\t%s\n", pairs[i], text)
		}
	}
	_ = w.Flush() // out's error shows at the next write
}

// messageLine is a message in JSON. Key and payload are text when they are
// UTF-8; else the fields ending in Base64 are there in their place.
type messageLine struct {
	Partition     uint32            `json:"partition"`
	Offset        uint64            `json:"offset"`
	Key           *string           `json:"key,omitempty"`
	KeyBase64     []byte            `json:"keyBase64,omitempty"`
	Payload       *string           `json:"payload,omitempty"`
	PayloadBase64 []byte            `json:"payloadBase64,omitempty"`
	Attributes    map[string]string `json:"attributes,omitempty"`
	AppendTime    time.Time         `json:"appendTime"`
	EventTime     *time.Time        `json:"eventTime,omitempty"`
	Attempt       uint32            `json:"attempt,omitempty"`
}

// message prints a message: partition/offset, key and payload in columns.
func (p *printer) message(m *client.Message) error {
	return p.value(lineOf(m), "%d/%d\t%s\t%s", m.Partition, m.Offset, readable(m.Key), readable(m.Payload))
}

func lineOf(m *client.Message) messageLine {
	line := messageLine{
		Partition: m.Partition, Offset: m.Offset, Attributes: m.Attributes,
		AppendTime: m.AppendTime.UTC(), Attempt: m.Attempt,
	}
	if !m.EventTime.IsZero() {
		at := m.EventTime.UTC()
		line.EventTime = &at
	}
	line.Key, line.KeyBase64 = textOrBytes(m.Key)
	line.Payload, line.PayloadBase64 = textOrBytes(m.Payload)
	return line
}

func textOrBytes(b []byte) (text *string, raw []byte) {
	if !utf8.Valid(b) {
		return nil, b
	}
	s := string(b)
	return &s, nil
}

// readable keeps what is not text from disturbing a terminal.
func readable(b []byte) string {
	if !utf8.Valid(b) || bytes.ContainsFunc(b, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return fmt.Sprintf("%q", b)
	}
	return string(b)
}

// ago is a duration for people: absent or zero is empty.
func ago(d *durationpb.Duration) string {
	if d == nil {
		return ""
	}
	v := d.AsDuration()
	if v > time.Minute {
		return v.Round(time.Second).String()
	}
	return v.Round(time.Millisecond).String()
}

func moment(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().Local().Format(time.DateTime)
}

// size is a number of bytes for people.
func size(n uint64) string {
	for _, unit := range []struct {
		bytes uint64
		name  string
	}{{1 << 40, "TiB"}, {1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= unit.bytes {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(unit.bytes), unit.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}
