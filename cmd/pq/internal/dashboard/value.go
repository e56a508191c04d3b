package dashboard

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
)

// Bounds of how much of a value is shown.
const (
	maxHex   = 8 << 10 // bytes
	maxDepth = 32      // of JSON that is laid out
	maxJSON  = 256 << 10
	maxPeek  = 160 // runes in a list
)

// run is a piece of text of one sort: "" as it is, "esc" for an invisible character that is written
// out, "cut" for the mark at the end of a text that goes on.
type run struct{ Sort, Text string }

// runs makes visible what a text, such as a hostile one, has of control, bidi and zero-width
// characters, and of bytes that are not UTF-8. It ends after a number of runes.
func runs(text string, most int) (list []run) {
	var b strings.Builder
	sort := ""
	flush := func() {
		if b.Len() > 0 {
			list = append(list, run{sort, b.String()})
		}
		b.Reset()
	}

	for i, n := 0, 0; i < len(text); n++ {
		if n == most {
			flush()
			return append(list, run{"cut", "…"})
		}
		r, width := utf8.DecodeRuneInString(text[i:])
		shown, as := text[i:i+width], ""
		if escape := escaped(r, shown); escape != "" {
			shown, as = escape, "esc"
		}
		if as != sort {
			flush()
			sort = as
		}
		b.WriteString(shown)
		i += width
	}

	flush()
	return list
}

// invisible are the tables of runes that fonts draw nothing for, though they can be printed.
var invisible = []*unicode.RangeTable{
	unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector,
}

// escaped returns how a rune is shown that could not be seen, "" for all others.
func escaped(r rune, bytes string) string {
	switch {
	case r == utf8.RuneError && len(bytes) == 1:
		return fmt.Sprintf(`\x%02x`, bytes[0])
	case r == '\n', r == '\t', unicode.IsPrint(r) && !unicode.In(r, invisible...):
		return ""
	}
	return strings.Trim(strconv.QuoteRuneToASCII(r), "'")
}

// shownValue is a value as a page shows it.
type shownValue struct {
	As   string // "text", "json" or "hex"
	Runs []run
	// JSON says that it can be laid out.
	JSON bool
	// Shown is how many bytes are shown.
	Shown int
}

// showValue lays out a value: as asked for or, if that is "" or not possible, as is best.
func showValue(value []byte, cut bool, as string) shownValue {
	whole := value
	if cut {
		whole = terminal.WholeRunes(value)
	}

	laidOut := layOut(value)

	v := shownValue{Shown: len(value), JSON: laidOut != nil}
	switch {
	case as == "json" && v.JSON, as == "" && v.JSON && isObject(value):
		v.As, v.Runs = "json", runs(string(laidOut), len(laidOut))
	case as == "hex", as == "" && !isText(whole):
		v.Shown = min(len(value), maxHex)
		v.As, v.Runs = "hex", []run{{"", hex.Dump(value[:v.Shown])}}
	default:
		v.As, v.Runs = "text", runs(string(whole), len(whole))
	}

	return v
}

// isText reports whether a value can be shown, and typed, as text.
func isText(value []byte) bool { return utf8.Valid(value) && !bytes.ContainsRune(value, 0) }

func isObject(value []byte) bool {
	value = bytes.TrimLeft(value, " \t\r\n")
	return len(value) > 0 && (value[0] == '{' || value[0] == '[')
}

// layOut indents JSON; nil if it is none, or would be too large. Depth is checked first, because
// indentation grows with its square.
func layOut(value []byte) []byte {
	depth, d := 0, json.NewDecoder(bytes.NewReader(value))
	d.UseNumber() // of any size
	for t, err := d.Token(); err == nil && depth <= maxDepth; t, err = d.Token() {
		switch t {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}

	var b bytes.Buffer
	if depth > maxDepth || !utf8.Valid(value) ||
		json.Indent(&b, bytes.TrimSpace(value), "", "  ") != nil || b.Len() > maxJSON {
		return nil
	}

	return b.Bytes()
}

// spaces are what a line of a list has one space for.
var spaces = regexp.MustCompile(`[ \t\r\n]+`)

// preview is the beginning of a value, for a line of a list.
func preview(value []byte, cut bool) []run {
	if most := 4 * maxPeek; len(value) > most {
		value, cut = value[:most], true
	}
	if cut {
		value = terminal.WholeRunes(value)
	}
	return runs(spaces.ReplaceAllString(string(value), " "), maxPeek)
}
