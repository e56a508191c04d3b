package dashboard

import (
	"io"
	"net/http"
)

// renderer writes pages and fragments.
type renderer struct{}

// newRenderer parses the templates.
func newRenderer() (*renderer, error) { return &renderer{}, nil }

// page writes a whole page.
func (r *renderer) page(w io.Writer, name string, s *shell, view any) error { return nil }

// main writes the <main> of a page.
func (r *renderer) main(w io.Writer, name string, s *shell, view any) error { return nil }

// fragment writes one template.
func (r *renderer) fragment(w io.Writer, name string, s *shell, view any) error { return nil }

// static serves the assets.
func (r *renderer) static() http.Handler { return http.NotFoundHandler() }

// patch is an element of a page that changes by itself, as HTML with that id.
type patch struct{ ID, HTML string }

// live returns what changes by itself on a page. The data of an event "patch" is the HTML of those
// that differ from what was sent last.
func (r *renderer) live(name string, s *shell, view any) ([]patch, error) { return nil, nil }
