package checker

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestFilesReadBackAsWritten(t *testing.T) {
	for _, name := range []string{"rewind to a moment and replay", "seek of unknown outcome", "a deleted topic"} {
		b := correct[name]()
		var first, second bytes.Buffer
		if err := Write(&first, &b.h, b.final); err != nil {
			t.Fatal(err)
		}
		text := first.String()
		h, final, err := Read(&first)
		if err != nil {
			t.Fatal(err)
		}
		if err := Write(&second, h, final); err != nil {
			t.Fatal(err)
		}
		if second.String() != text {
			t.Errorf("%s: wrote\n%s\nread and wrote\n%s", name, text, second.String())
		}
		if got, want := Check(h, final).String(), Check(&b.h, b.final).String(); got != want {
			t.Errorf("%s: from the file %s, directly %s", name, got, want)
		}
	}
}

func TestLogsAreCutIntoLines(t *testing.T) {
	b := &book{}
	b.log(0, 2*messagesPerLine+5)
	var buf bytes.Buffer
	if err := Write(&buf, &b.h, b.final); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(buf.String(), "\n"); n != 3 {
		t.Errorf("%d lines, want 3", n)
	}
	h, final, err := Read(&buf)
	if err != nil {
		t.Fatal(err)
	}
	if report := Check(h, final); report.Result() != OK {
		t.Error(report)
	}
}

func TestDocumentedLinesAreRead(t *testing.T) {
	text := strings.Join([]string{
		`{"client":1,"call":5,"return":9,"outcome":"ok","publish":{"topic":"orders","partition":0,` +
			`"messages":[{"key":"a","payload":17}],"offset":3}}`,
		`{"client":2,"call":7,"return":null,"outcome":"unknown","ack":{"subscription":"orders/s",` +
			`"member":"m1","generation":2,"partition":0,"next":4}}`,
		`{"log":{"topic":"orders","partition":0,"log_start":0,"high_watermark":1,` +
			`"messages":[{"offset":0,"payload":17,"append_time":1000}]}}`,
		`{"cursors":{"subscription":"orders/s","partitions":[{"partition":0,"offset":4}]}}`,
		`{"drained":true}`,
	}, "\n")
	h, final, err := Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if len(h.Ops) != 2 || h.Ops[1].Return != Open || h.Ops[0].Publish.Offset != 3 || !final.Drained ||
		len(final.Logs) != 1 {
		t.Errorf("read %+v, %+v", h.Ops, final)
	}
}

func TestBadLinesAreNamed(t *testing.T) {
	good := `{"call":5,"return":9,"outcome":"ok","delete":{"topic":"t"}}` + "\n"
	for bad, want := range map[string]string{
		`{`:                              "line 2: unexpected end",
		`{"call":7}`:                     "neither an operation nor",
		`{"call":1,"outcome":"ok"}`:      "neither an operation nor",
		`{"drained":true,"log":{}}`:      "several things at once",
		`{"call":7,"fetch":{}}`:          `outcome "" is not`,
		`{"call":7,"fetch":{},"ack":{}}`: "has 2 kinds",
		`{"call":7,"return":6,"outcome":"ok","fetch":{}}`: "before its call",
		`{"call":7,"outcome":"ok","fetch":{}}`:            "no return",
		`{"call":1,"outcome":"unknown","fetch":{}}`:       "order operations by call",
	} {
		_, _, err := Read(strings.NewReader(good + bad))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", bad, err, want)
		}
	}
	long := `{"drained":` + strings.Repeat(" ", MaxLineBytes) + "true}"
	if _, _, err := Read(strings.NewReader(long)); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("a long line: %v", err)
	}
}

func FuzzRead(f *testing.F) {
	for _, c := range slices.Concat(planted[:1], planted[len(planted)-1:]) {
		b := c.make()
		var buf bytes.Buffer
		if err := Write(&buf, &b.h, b.final); err != nil {
			f.Fatal(err)
		}
		f.Add(buf.Bytes())
	}
	f.Add([]byte(`{"call":1,"outcome":"unknown","publish":{"topic":"t","any_partition":true,"messages":[{}]}}`))
	f.Add([]byte(`{"log":{"topic":"t","high_watermark":9,"messages":[{"offset":18446744073709551615}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, final, err := Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		_ = Check(h, final).String() // must not panic, whatever the numbers
		_ = CheckLinear(h, final, Budget{Window: 3, Steps: 1000, Total: 10_000}).Verdict()
		var first, second bytes.Buffer
		if err := Write(&first, h, final); err != nil {
			t.Fatal(err)
		}
		again, finalAgain, err := Read(bytes.NewReader(first.Bytes()))
		if err != nil {
			t.Fatalf("reads %q but not what it wrote: %v", data, err)
		}
		if err := Write(&second, again, finalAgain); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Fatalf("wrote %q, then %q", first.Bytes(), second.Bytes())
		}
	})
}
