package dashboard

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"html/template"
	"math"
	"reflect"
	"strconv"
	"time"

	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
)

// none stands for a number that is not known.
const none = "—"

// formats are the functions of the templates. Those of numbers also take nil pointers, as none.
var formats = template.FuncMap{
	"num":   orNone(terminal.Grouped),
	"rate":  orNone(rate),
	"age":   orNone(age),
	"part":  func(part float64) string { return fmt.Sprintf("%.1f", 100*min(max(part, 0), 1)) },
	"ratio": func(n, of int64) float64 { return float64(n) / float64(max(n, of, 1)) },
	"size":  func(n int) string { return size(int64(n)) },
	"count": func(n int) int64 { return int64(n) },
	"few":   terminal.Plural[int64],
	"ago":   func(now, t time.Time) string { return age(now.Sub(t)) + " ago" },
	"until": soon("in ", ""),
	"stamp": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	"iso":   func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
	"left":  soon("", " left"),
	"spark": spark,
	"json":  func(v any) (string, error) { b, err := json.Marshal(v); return string(b), err },
	"short": short,
	"ends":  ends,
	"runs":  func(text string) []run { return runs(text, math.MaxInt) },
	"clip":  runs,
	"value": showValue,
	"peek":  preview,
	"gloss": func(verb string) gloss { return glosses[verb] },
	"none":  func() string { return none },
	"hot":   func(n *int64) bool { return n != nil && *n > 0 },
	"faint": faint,
	"list":  func(values ...any) []any { return values },
}

// orNone makes a format of numbers one of pointers too.
func orNone[T int64 | float64 | time.Duration](format func(T) string) func(any) (string, error) {
	return func(v any) (string, error) {
		switch v := v.(type) {
		case T:
			return format(v), nil
		case int:
			return format(T(v)), nil
		case *T:
			if v == nil {
				return none, nil
			}
			return format(*v), nil
		}
		return "", fmt.Errorf("a %T is no number", v)
	}
}

// rate writes how often something happens in a second: 0, 0.02, 4.1, 1,204.
func rate(f float64) string {
	switch {
	case f <= 0:
		return "0"
	case f < 0.995:
		return strconv.FormatFloat(max(f, 0.01), 'f', 2, 64)
	case f < 9.95:
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	return terminal.Grouped(int64(math.Round(f)))
}

// age writes a duration: 59s, 1m 5s, 1h 1m, 2d 3h.
func age(d time.Duration) string {
	units := []struct {
		name string
		unit time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}}
	d = max(d, 0)
	for i, large := range units[:3] {
		if d < large.unit {
			continue
		}
		text := fmt.Sprintf("%d%s", d/large.unit, large.name)
		small := units[i+1]
		if rest := d % large.unit / small.unit; rest > 0 {
			text += fmt.Sprintf(" %d%s", rest, small.name)
		}
		return text
	}

	return fmt.Sprintf("%ds", d/time.Second)
}

// soon writes how long it is until a time, between two words.
func soon(before, after string) func(now, t time.Time) string {
	return func(now, t time.Time) string {
		if d := t.Sub(now); d > 0 {
			return before + age(d) + after
		}
		return "due"
	}
}

// size writes a number of bytes: 812 B, 3.4 kB.
func size(n int64) string {
	f, unit := float64(n), "B"
	for _, larger := range []string{"kB", "MB", "GB", "TB"} {
		if f < 999.5 {
			break
		}
		f, unit = f/1000, larger
	}
	if f < 9.95 && unit != "B" {
		return fmt.Sprintf("%.1f %s", f, unit)
	}
	return fmt.Sprintf("%.0f %s", f, unit)
}

// spark returns the points of a line, from left to right in a box of w by h.
func spark(line []int64, w, h int) string {
	var least, most int64
	for _, n := range line {
		least, most = min(least, n), max(most, n)
	}

	var b []byte // without fmt, because there are many of them each second
	for i, n := range line {
		x := float64(w) * float64(i) / float64(max(len(line)-1, 1))
		y := float64(h) * (1 - float64(n-least)/float64(cmp.Or(most-least, 1)))
		b = append(strconv.AppendFloat(b, x, 'f', 1, 64), ',')
		b = append(strconv.AppendFloat(b, y, 'f', 1, 64), ' ')
	}

	return string(bytes.TrimSuffix(b, []byte(" ")))
}

// short returns the beginning and the end of an id.
func short(id string) string {
	if len(id) <= 14 {
		return id
	}
	return id[:4] + "…" + id[len(id)-7:]
}

// ends returns a long name in two parts, of which a page cuts the first one; nil for others.
func ends(name string) []string {
	const least, tail = 24, 10
	runes := []rune(name)
	if len(runes) <= least {
		return nil
	}
	cut := len(runes) - tail
	return []string{string(runes[:cut]), string(runes[cut:])}
}

// faint is the class of numbers that say nothing: 0, or not known.
func faint(v any) string {
	if value := reflect.Indirect(reflect.ValueOf(v)); !value.IsValid() || value.IsZero() {
		return "z"
	}
	return ""
}

// gloss is how an action is called.
type gloss struct{ Do, Done, Danger string }

var glosses = map[string]gloss{
	"remove":  {"Remove", "removed", "They are gone for good."},
	"move":    {"Move", "moved", ""},
	"redrive": {"Redrive", "redriven", ""},
	"release": {"Release", "released", "A holder that is still at work loses its lease."},
	"purge":   {"Purge", "purged", "They are gone for good."},
}
