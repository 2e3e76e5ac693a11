#include "report/document.h"

#include "base/file.h"
#include "check.h"
#include "scratch.h"

static char *file_of(scratch *dir, const char *name) {
    char *text = NULL;
    CHECK_OK(strait_file_read(scratch_at(dir, name), 1 << 20, &text, NULL));
    return text;
}

/* Names come from study files: none may end a cell, a field or a tag. */
static void test_escapes_cells_for_each_format(void **state) {
    (void)state;
    scratch dir = scratch_open();
    struct strait_document *d = NULL;
    const char *heads[] = {"name", "loss, \"x\""};
    const double x[] = {1, 2};
    const strait_plot_line line = {"a", x, x, 2};
    const strait_plot plot = {
        .title = "t", .x_label = "x", .y_label = "y", .lines = &line, .n_lines = 1};
    CHECK_OK(strait_document_open(dir.path, "a <b>", &d));
    strait_document_text(d, "1 < 2");
    strait_document_text(d, "%s%s",
                         "a paragraph of more than one hundred and twenty columns, whose ",
                         "words go on to further lines of the Markdown file, but not of the page");
    strait_document_table(d, "table", heads, 2);
    strait_document_cell(d, "<script>a|b");
    strait_document_number(d, "%.2f", 1.5);
    strait_document_cell(d, "x");
    strait_document_number(d, "%.2f", (double)NAN);
    CHECK_OK(strait_document_plot(d, "curve", &plot));
    CHECK_OK(strait_document_close(&d, 1));
    char *html = file_of(&dir, "report.html");
    char *markdown = file_of(&dir, "table.md");
    char *csv = file_of(&dir, "table.csv");
    CHECK(strstr(html, "<td>&lt;script>a|b</td><td>1.50</td></tr>") != NULL);
    CHECK(strstr(html, "<script") == NULL && strstr(html, "<svg") != NULL);
    CHECK(strstr(html, "<p>1 &lt; 2</p>") != NULL);
    CHECK(strstr(markdown,
                 "\na paragraph of more than one hundred and twenty columns, whose words go "
                 "on to further lines of the Markdown file, but\nnot of the page\n") != NULL);
    CHECK(strstr(markdown, "| <script>a\\|b | 1.50 |\n| x | - |\n") != NULL);
    CHECK(strcmp(csv, "name,\"loss, \"\"x\"\"\"\n<script>a|b,1.50\nx,-\n") == 0);
    CHECK(strait_file_exists(scratch_at(&dir, "curve.svg")));
    strait_alloc_free(html);
    strait_alloc_free(markdown);
    strait_alloc_free(csv);
    scratch_close(&dir);
}

static void test_closing_without_writing_leaves_no_file(void **state) {
    (void)state;
    scratch dir = scratch_open();
    struct strait_document *d = NULL;
    CHECK_OK(strait_document_open(dir.path, "t", &d));
    CHECK_OK(strait_document_close(&d, 0));
    CHECK(!strait_file_exists(scratch_at(&dir, "report.html")));
    scratch_close(&dir);
}

/* A report of one file leaves nothing else beside it. */
static void test_writes_one_page(void **state) {
    (void)state;
    scratch dir = scratch_open();
    struct strait_document *d = NULL;
    const char *heads[] = {"name"};
    const double x[] = {1, 2};
    const strait_plot_line line = {"a", x, x, 2};
    const strait_plot plot = {
        .title = "t", .x_label = "x", .y_label = "y", .lines = &line, .n_lines = 1};
    CHECK_OK(strait_document_open_page(scratch_at(&dir, "one.html"), "t", &d));
    strait_document_table(d, "table", heads, 1);
    strait_document_cell(d, "x");
    CHECK_OK(strait_document_plot(d, "curve", &plot));
    strait_document_verbatim(d, "a: <b>\n  c");
    CHECK_OK(strait_document_close(&d, 1));
    char *html = file_of(&dir, "one.html");
    CHECK(strstr(html, "<pre>a: &lt;b>\n  c</pre>") != NULL && strstr(html, "<svg") != NULL);
    strait_alloc_free(html);
    static const char *const others[] = {"report.html", "table.md", "table.csv", "curve.svg"};
    for (int i = 0; i < 4; i++)
        CHECK(!strait_file_exists(scratch_at(&dir, others[i])));
    scratch_close(&dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_escapes_cells_for_each_format),
        cmocka_unit_test(test_writes_one_page),
        cmocka_unit_test(test_closing_without_writing_leaves_no_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
