package model

import "testing"

func TestClosest(t *testing.T) {
	names := []string{"bills", "orders", "orders.eu", "x"}
	for name, want := range map[string]string{
		"order": "orders", "ordres": "orders", "orders.uk": "orders.eu", "bill": "bills", "": "x",
		"zebra": "", "y": "x", "orders": "", "bilsl": "bills",
	} {
		if name == "orders" {
			want = "" // it is there itself; "orders.eu" is three edits away
		}
		if got := Closest(name, names); got != want {
			t.Errorf("Closest(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestEditDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"kitten", "sitting", 3}, {"abc", "abc", 0}, {"abc", "xyz", 3}} {
		if got := editDistance(c.a, c.b, 9); got != c.want {
			t.Errorf("%q %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
	if got := editDistance("kitten", "sitting", 2); got != 3 {
		t.Errorf("above the limit: %d, want limit+1", got)
	}
}
