package model

import "strings"

// shortName is the length from which on a slip can be told from another name.
const shortName = 3

// Closest returns the name nearest to the given one by edit distance, or "" if
// none is near enough to be what was meant: about one edit in three characters.
// Among equally near names the first counts.
func Closest(name string, names []string) string {
	best, limit := "", (len(name)+1)/3
	if len(name) < shortName {
		return "" // one edit makes any name of another
	}
	for _, n := range names {
		if n == name {
			continue
		}
		if d := editDistance(name, n, limit); d <= limit {
			best, limit = n, d-1
		}
	}
	return best
}

// editDistance counts insertions, removals and replacements of bytes, and swaps of
// neighbours; it gives up with limit+1 as soon as the distance is known to be above
// limit.
func editDistance(a, b string, limit int) int {
	if d := len(a) - len(b); d > limit || -d > limit {
		return limit + 1
	}
	// row[j] is the distance of a[:i] and b[:j]; above and above2 are those of i-1 and i-2.
	above2, above, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		above2, above, row = above, row, above2
		row[0] = i
		least := i
		for j := 1; j <= len(b); j++ {
			d := above[j-1]
			if a[i-1] != b[j-1] {
				d = 1 + min(above[j-1], above[j], row[j-1])
			}
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, above2[j-2]+1)
			}
			row[j] = d
			least = min(least, d)
		}
		if least > limit+1 { // a swap may come back to the row above
			return limit + 1
		}
	}
	return min(row[len(b)], limit+1)
}

// TopicNotFound is the NOT_FOUND of a topic; it names the closest one there is.
func TopicNotFound(c Catalog, name string) *Error {
	topics := c.Topics()
	names := make([]string, len(topics))
	for i, t := range topics {
		names[i] = t.Name
	}
	return notFound("topic", name, Closest(name, names))
}

// SubscriptionNotFound is the NOT_FOUND of a subscription; it names the closest
// name of the same topic, else the same name of the closest topic.
func SubscriptionNotFound(c Catalog, ref string) *Error {
	topic, name, _ := strings.Cut(ref, "/")
	if _, ok := c.Topic(topic); !ok {
		err := TopicNotFound(c, topic)
		err.Message = "subscription " + ref + ": " + err.Message
		return err
	}
	var same, others []string
	for _, s := range c.Subscriptions() {
		if s.TopicName == topic {
			same = append(same, s.Name)
		} else if s.Name == name {
			others = append(others, s.Ref())
		}
	}
	// The names alone are compared: what the references share would hide how far
	// apart they are.
	if near := Closest(name, same); near != "" {
		return notFound("subscription", ref, topic+"/"+near)
	}
	return notFound("subscription", ref, Closest(ref, others))
}

func notFound(what, name, near string) *Error {
	if near != "" {
		return Errorf(NotFound, "%s %q does not exist; did you mean %q?", what, name, near)
	}
	return Errorf(NotFound, "%s %q does not exist", what, name)
}
