#include "roff.h"

#include <strait/version.h>

#include <ctype.h>
#include <string.h>

enum {
    LINE_MAX_COLUMNS = 72
};

static const char white[] = " \t\n";

/* The escape of a character that roff would interpret; NULL: it is plain. */
static const char *escape_of(char c) {
    static const struct {
        char letter;
        const char *escape;
    } escapes[] = {{'\\', "\\e"},  {'-', "\\-"},   {'\'', "\\(aq"}, {'`', "\\(ga"},
                   {'^', "\\(ha"}, {'~', "\\(ti"}, {'"', "\\(dq"}};
    for (size_t i = 0; i < sizeof escapes / sizeof *escapes; i++)
        if (escapes[i].letter == c) return escapes[i].escape;
    return NULL;
}

/* Quotes and dashes would become typographic ones, which cannot be copied into a shell. */
static void put_letter(FILE *to, char c) {
    const char *escape = escape_of(c);
    if (escape != NULL)
        (void)fputs(escape, to);
    else
        (void)fputc(c, to);
}

/* Lines of the source are short for diff and mail, so the width counts escapes. */
static int width_of(const char *word, size_t length) {
    size_t width = length + 1;
    for (size_t i = 0; i < length; i++)
        width += escape_of(word[i]) != NULL ? strlen(escape_of(word[i])) - 1 : 0;
    return (int)width;
}

/* Writes one word; font is 'B' (bold), 'I' (italic) or 'R' (roman). */
static void put_word(strait_roff *page, const char *word, size_t length, char font) {
    const int width = width_of(word, length);
    const int is_full = page->column > 0 && page->column + width > LINE_MAX_COLUMNS;
    if (is_full && !page->is_tag) strait_roff_end(page);
    if (page->column > 0) (void)fputc(' ', page->to);
    if (is_full && page->is_tag) {
        (void)fputs("\\\n", page->to); // roff reads on as if the line had not ended
        page->column = 0;
    }
    page->column += width;
    if (font != 'R') fprintf(page->to, "\\f%c", font);
    if (word[0] == '.')
        (void)fputs("\\&", page->to); // at the start of a line it would be a request
    for (size_t i = 0; i < length; i++)
        put_letter(page->to, word[i]);
    if (font != 'R') (void)fputs("\\fR", page->to);
}

/* The source may be wrapped anywhere: roff fills lines by itself. */
static void put_words(strait_roff *page, const char *text, size_t length, char font) {
    const char *end = text + length;
    for (text += strspn(text, white); text < end; text += strspn(text, white)) {
        const size_t n = strcspn(text, white);
        put_word(page, text, n, font);
        text += n;
    }
}

/* Requests must be on lines of their own. */
static void request(strait_roff *page, const char *macro) {
    strait_roff_end(page);
    fprintf(page->to, "%s\n", macro);
}

void strait_roff_title(strait_roff *page, const char *name, int section, const char *summary) {
    fprintf(page->to, ".TH ");
    for (const char *c = name; *c != '\0'; c++)
        put_letter(page->to, (char)toupper((unsigned char)*c));
    fprintf(page->to, " %d %s \"strait %s\" \"Strait Manual\"\n", section, STRAIT_VERSION_DATE,
            STRAIT_VERSION);
    request(page, ".nh"); // without hyphenation, so that names can be searched
    strait_roff_heading(page, "NAME");
    put_words(page, name, strlen(name), 'R');
    (void)fputs(" \\-", page->to);
    put_words(page, summary, strlen(summary), 'R');
}

void strait_roff_heading(strait_roff *page, const char *text) {
    strait_roff_end(page);
    fprintf(page->to, ".SH %s\n", text);
}

/* An empty line of the help separates paragraphs, as in its source. */
void strait_roff_text(strait_roff *page, const char *text) {
    for (;;) {
        const char *gap = strstr(text, "\n\n");
        put_words(page, text, gap != NULL ? (size_t)(gap - text) : strlen(text), 'R');
        if (gap == NULL) return;
        strait_roff_paragraph(page);
        text = gap + 2;
    }
}

void strait_roff_break(strait_roff *page) {
    request(page, ".br");
}

void strait_roff_paragraph(strait_roff *page) {
    request(page, ".PP");
}

void strait_roff_item(strait_roff *page) {
    request(page, ".TP");
    page->is_tag = 1;
}

void strait_roff_typed(strait_roff *page, const char *text) {
    put_words(page, text, strlen(text), 'B');
}

/* "[flags]" and the like stay roman: only flags and capitals are marked. */
void strait_roff_usage(strait_roff *page, const char *text) {
    for (text += strspn(text, white); *text != '\0'; text += strspn(text, white)) {
        const size_t n = strcspn(text, white);
        const char *start = text + strspn(text, "[");
        int has_capitals = 0;
        for (size_t i = 0; i < n; i++)
            has_capitals |= isupper((unsigned char)text[i]) != 0;
        put_word(page, text, n, (char)(*start == '-' ? 'B' : has_capitals ? 'I' : 'R'));
        text += n;
    }
}

/* Called before requests and at the end of a page; an open line is closed once. */
void strait_roff_end(strait_roff *page) {
    if (page->column > 0) (void)fputc('\n', page->to);
    page->column = page->is_tag = 0;
}
