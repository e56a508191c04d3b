package terminal

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
)

// What can follow the title of a column.
const (
	right   = ">" // its values are aligned to the right
	snipped = "~" // they are cut, to no less than narrowest, if the terminal has not enough columns
)

const narrowest = 8

// Table is a table: for people with a heading, for programs with tabs between the columns.
type Table struct {
	out     io.Writer
	width   int // of the terminal, 0 for programs
	columns []string
	rows    [][]string // for people, the first is the heading
	least   []int      // how wide the columns were when Flush was last called; nil before
}

// NewTable returns a table without rows, which Print writes to out. The columns are their titles,
// with a > behind titles of numbers, and a ~ behind titles of names, which are cut to fit.
func NewTable(out io.Writer, columns ...string) *Table {
	width := 0
	if Is(out) {
		width = cmp.Or(Width(out), 80)
	}
	t := NewTableOf(width, columns...)
	t.out = out
	return t
}

// NewTableOf returns a table as wide as a terminal, or for programs with the width 0, which String
// and Flush return.
func NewTableOf(width int, columns ...string) *Table {
	t := &Table{width: width, columns: columns}
	if width > 0 {
		titles := strings.NewReplacer(right, "", snipped, "").Replace(strings.Join(columns, "\n"))
		t.rows = append(t.rows, strings.Split(titles, "\n"))
	}
	return t
}

// Row adds a row. People get numbers with commas. Texts may come from others.
func (t *Table) Row(values ...any) {
	row := make([]string, len(values))
	for i, v := range values {
		if n, ok := v.(int64); ok && t.width > 0 {
			v = Grouped(n)
		}
		row[i] = Plain(fmt.Sprint(v))
	}
	t.rows = append(t.rows, row)
}

// Print prints the table, and for people as of when it is.
func (t *Table) Print() error {
	_, err := io.WriteString(t.out, t.String()+AsOf(t.out))
	return err
}

// Flush returns the rows so far, and forgets them: so a long list is printed as it comes. The
// heading is above the first row only, and a column stays as wide as it was.
func (t *Table) Flush() string {
	if t.least == nil && len(t.rows) < 2 && t.width > 0 {
		return "" // no row yet
	}
	text := t.String()
	t.least, t.rows = t.needed(), nil
	return text
}

// String returns the table.
func (t *Table) String() string {
	var b strings.Builder
	if t.width == 0 {
		for _, row := range t.rows {
			b.WriteString(strings.Join(row, "\t") + "\n")
		}
		return b.String()
	}

	widths := t.widths()
	for _, row := range t.rows {
		line := slices.Clone(row)
		for i, col := range t.columns {
			align := text.AlignLeft
			if strings.HasSuffix(col, right) {
				align = text.AlignRight
			}
			line[i] = align.Apply(Clip(row[i], widths[i]), widths[i])
		}
		text := Clip(strings.Join(line, between), t.width)
		b.WriteString(strings.TrimRight(text, " ") + "\n")
	}

	return b.String()
}

// between is the blanks between columns.
const between = "  "

// needed returns how wide the columns would be with room for all that is in them.
func (t *Table) needed() []int {
	widths := make([]int, len(t.columns))
	copy(widths, t.least)
	for i := range widths {
		for _, row := range t.rows {
			widths[i] = max(widths[i], text.StringWidth(row[i]))
		}
	}
	return widths
}

// widths returns how wide the columns are. Columns of names, the first before the others, make room
// for the rest.
func (t *Table) widths() []int {
	widths, all := t.needed(), -len(between)
	for _, width := range widths {
		all += width + len(between)
	}

	for i, col := range t.columns {
		if over := all - t.width; over > 0 && strings.HasSuffix(col, snipped) {
			narrow := max(widths[i]-over, min(widths[i], narrowest))
			all -= widths[i] - narrow
			widths[i] = narrow
		}
	}

	return widths
}
